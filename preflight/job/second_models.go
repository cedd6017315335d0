package job

import (
	"os"
	"strings"

	"oomguard/preflight/job/shell"
	"oomguard/preflight/model"
)

// hold notes a second model.
func (r *reader) hold(role string, name Setting[string], trained, idle bool) {
	if why, unknown := shell.Unknown(name.Value); unknown {
		name = Setting[string]{Origin: why}
	}
	r.besides = append(r.besides, besides{SecondModel{Role: role, Name: name.Or(""), Trained: trained, Idle: idle,
		Origin: name.Origin}, false})
}

// holdsNoOther says that nothing but what is noted is held.
func (r *reader) holdsNoOther(why string) { r.alone = why }

// deriveSecondModels looks up how large the noted models are.
func (r *reader) deriveSecondModels() {
	set := &r.job.SecondModels
	r.readBesides()
	if len(r.besides) == 0 {
		if r.alone != "" {
			set.Offer(SecondModels{}, r.alone)
		}
		switch task := r.job.Task; {
		case task.Value == "ppo" || task.Value == "kd":
			set.Unknown("which models " + task.Value + " holds beside the one that is trained is not known: " +
				task.Origin)
		case r.blocked == "" && !r.family.foreign:
			set.Offer(SecondModels{}, "nothing names one")
		}
		return
	}
	var models SecondModels
	var origins []string
	for _, b := range r.besides {
		why := ""
		if b.Params == 0 && !b.uncounted {
			b.Params, why = r.sizeOf(b.Name)
		}
		models, origins = append(models, b.SecondModel),
			append(origins, strings.TrimSpace(b.Role+": "+b.Origin+" "+why))
	}
	set.Offer(models, strings.Join(origins, "; "))
}

// sizeOf is the number of parameters of a model by its folder or hub name, and where that is from, or why it is not
// known.
func (r *reader) sizeOf(name string) (params int64, why string) {
	switch {
	case name == "":
		return 0, "(nothing names it)"
	case name == r.job.Model.Value && r.job.ModelParams.Known:
		return r.job.ModelParams.Value, "(the model itself)"
	}
	folder := r.path(name)
	if _, err := os.Stat(folder); err != nil {
		hub := model.HubModel{Name: name}
		folder, err = model.FindCached(hub, r.cacheFolder(), r.cacheVariable)
		if err != nil && r.src.FetchModel != nil && !looksLikePath(name) {
			folder, err = r.src.FetchModel(hub)
		}
		if err != nil {
			if known := r.knownModel(hub); known != nil {
				return known.Parameters(), "(" + known.Source + ")"
			}
			return 0, "(its config.json is neither here nor in the Hugging Face cache, and it is not in the " +
				"built-in table)"
		}
	}
	a, err := r.src.LoadModel(folder)
	if err != nil {
		return 0, "(" + err.Error() + ")"
	}
	return a.Parameters(), "(" + a.Source + ")"
}
