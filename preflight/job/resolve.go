package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
	"oomguard/preflight/model"
)

// readModel loads the architecture that the job names, or makes one from --params. A framework that builds its model
// from the command line has set the architecture already.
func (r *reader) readModel() {
	j := r.job
	for name, set := range map[string]*Setting[string]{"model_name_or_path": &j.Model, "model_revision": &r.revision,
		"cache_dir": &r.cacheDir} {
		a := r.args[name]
		if why, unknown := shell.Unknown(a.text); unknown {
			set.Withhold(why)
		} else if a.text != "" {
			set.Offer(a.text, a.origin)
		}
	}
	r.readModelOfUnseen()
	fresh := r.readFreshModel()
	if j.Model.Known && j.Architecture == nil && !described(j.Model) {
		r.loadModel()
	}
	if a := j.Architecture; fresh && a != nil && a.Dtype != "" {
		r.load.Offer(a.Dtype, "a fresh model takes the dtype in "+a.Source)
	} else if fresh && a != nil {
		r.load.Offer("fp32", "a fresh model is fp32, because "+a.Source+" names no dtype")
	}
	if a := j.Architecture; a != nil && slices.Contains(unpackedToTrain(), a.QuantMethod) {
		r.load.Offer("bf16", a.Source+": "+a.QuantMethod+" weights are unpacked to bf16")
	}
	if r.params.Known {
		switch a := j.Architecture; {
		case a == nil, r.params.own() && !j.Model.own() && a.Parameters() != r.params.Value:
			j.Architecture = model.FromParams(r.params.Value)
		case a.Parameters() != r.params.Value:
			r.unread(fmt.Errorf("%s: %d parameters, but %s has %d; give one of the two", r.params.Origin,
				r.params.Value, a.Source, a.Parameters()))
		}
	}
	switch {
	case r.params.Known:
		j.ModelParams.Offer(r.params.Value, r.params.Origin)
	case j.Architecture != nil:
		j.ModelParams.Offer(j.Architecture.Parameters(), j.Architecture.Source)
	case !j.Model.Known:
		j.ModelParams.Unknown("no model named; give --model DIR or config.json")
	}
}

// readModelOfUnseen takes an option that most scripts call their model by, where the script itself is not here to say.
// Only what can be nothing but a hub name (owner/name) is taken.
func (r *reader) readModelOfUnseen() {
	j := r.job
	if j.Model.Known || j.Model.Origin != "" ||
		r.family.framework != "hf-trainer" && r.family.framework != "deepspeed" || r.scriptText() != nil {
		return
	}
	words := j.ScriptArgs
	for i, word := range words {
		option, value, attached := strings.Cut(word, "=")
		if !slices.Contains([]string{"--model_name", "--base_model", "--model_id", "--pretrained_model_name_or_path"},
			"--"+plainName(option)) {
			continue
		}
		if !attached && i+1 < len(words) {
			value = words[i+1]
		}
		owner, name, two := strings.Cut(value, "/")
		if two && owner != "" && owner != "." && owner != ".." && owner != "~" && name != "" &&
			!strings.Contains(name, "/") && filepath.Ext(name) != ".json" {
			j.Model.Offer(value, "command line "+option+", by which most scripts name their model")
		}
	}
}

// readFreshModel: without --model_name_or_path, run_clm.py and its kin make a model of a configuration, in the
// configuration's dtype (transformers modeling_utils.py, _from_config).
func (r *reader) readFreshModel() bool {
	j := r.job
	config, kind, changes := r.args["config_name"], r.args["model_type"], r.args["config_overrides"]
	if j.Model.Origin != "" {
		return false
	}
	switch {
	case changes.text != "":
		j.Model.Unknown(changes.origin +
			" changes the configuration of a fresh model, which is not followed here; give --model DIR with the " +
			"changed config.json")
	case config.text != "":
		j.Model.Offer(config.text, config.origin+": a fresh model of this configuration")
		return true
	case kind.text != "":
		j.Model.Unknown(kind.origin + " " + kind.text +
			": a fresh model of the sizes that transformers has built in; give --model DIR with its config.json")
	}
	return false
}

// loadModel loads what the job calls its model. The folder of an adapter leads to the model that it was made for.
func (r *reader) loadModel() {
	folder := r.findModel()
	if folder == "" {
		return
	}
	if info, err := os.Stat(folder); err == nil && info.IsDir() && exists(folder, adapterFile) {
		if base := r.readAdapterFolder(folder); base.Known {
			r.job.Model.become(base)
			if folder = r.findModel(); folder == "" {
				return
			}
		} else if !exists(folder, "config.json") {
			return
		}
	}
	architecture, err := r.src.LoadModel(folder)
	var kind *model.UnknownTypeError
	switch {
	case err == nil:
		r.job.Architecture = architecture
	case errors.As(err, &kind): // nothing is wrong with the job
		r.job.ModelParams.Unknown(fmt.Sprintf("the parameters of a model of type %q cannot be counted here (%s); "+
			"--params N gives a lower bound", kind.Type, kind.Path))
		r.job.Quant.Unknown(fmt.Sprintf("a quantization_config in a model of type %q is not read; give --quant if "+
			"it has one", kind.Type))
	case !r.params.Known: // --params is the remedy for a model that cannot be read
		r.job.ModelParams.Unknown("the model could not be read: " + err.Error())
		r.unread(err) // what loads it may read more
	}
}

// findModel is the folder, or the config.json, of the job's model. "" when there is none: then the architecture has
// been taken from elsewhere, or the reason why it is not known has been recorded.
func (r *reader) findModel() string {
	name := r.job.Model.Value
	path := r.path(name)
	_, err := os.Stat(path)
	switch {
	case err == nil:
		return path
	case looksLikePath(name):
		if !r.params.Known {
			r.job.ModelParams.Unknown("the model's folder could not be read")
			r.unusable(document.Gone(fmt.Errorf("%s: model %s: no such file or folder; correct the path (--params N "+
				"gives a lower bound)", r.job.Model.Origin, name)))
		}
		return ""
	}
	return r.findOnHub(model.HubModel{Name: name, Revision: r.revision.Or("")})
}

// findOnHub looks for a hub name where the training will: in Hugging Face's cache; then on the hub itself if that is
// allowed; then in the table of public architectures, which knows no revisions.
func (r *reader) findOnHub(m model.HubModel) string {
	folder, err := model.FindCached(m, r.cacheFolder(), r.cacheVariable)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && r.src.FetchModel != nil {
		folder, err = r.src.FetchModel(m)
	}
	if err == nil {
		return folder
	}
	if missing && r.offline() {
		r.fail(fmt.Sprintf("OSError: %s is not in the Hugging Face cache, and downloading it is forbidden by "+
			"HF_HUB_OFFLINE", m.Name), r.job.Model.Origin)
	}
	if known := r.knownModel(m); known != nil {
		r.job.Architecture = known
		return ""
	}
	why := err.Error()
	if missing && r.src.FetchModel == nil {
		why = m.Name + " is neither in the Hugging Face cache nor in the built-in table; allow a look at the hub " +
			"with --online, or give --model DIR (--params N gives a lower bound)"
	}
	r.job.ModelParams.Unknown(why)
	return ""
}

// offline: transformers will load the model and may not download it.
func (r *reader) offline() bool {
	for _, variable := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		switch strings.ToUpper(r.getenv(variable)) { // ENV_VARS_TRUE_VALUES of huggingface_hub/constants.py
		case "1", "ON", "YES", "TRUE":
			return r.family.huggingFace()
		}
	}
	return false
}
