package job

import (
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// What a script imports says what it is and what of it has not been read.

// requires reports whether a class comes from a package of trainers by an import without which the file cannot run,
// itself or through the class of the file's own that extends it.
func (f *sourceFile) requires(class string) bool {
	if own := f.Class(class); own != nil {
		return len(own.Bases) > 0 && own.Bases[0] != class && f.requires(own.Bases[0])
	}
	name := f.Qualified(class)
	root, _, _ := strings.Cut(name, ".")
	for _, i := range f.Imports {
		from, _, _ := strings.Cut(i.Module, ".")
		trains := from == "transformers" || from == "trl" || from == "unsloth"
		if i.Sure && trains && (from == root || i.Name == "*" && name == class) {
			return true
		}
	}
	return false
}

// requires reports whether one of the files cannot run without a module.
func (t *sourceText) requires(module string) bool {
	return slices.ContainsFunc(t.files, func(f *sourceFile) bool { return f.RequiresModule(module) })
}

// plainPackages are what a script may import and still decide itself how many processes there are and what is trained:
// Python's own library, and packages that do only what they are called for.
const plainPackages = `__future__ abc argparse ast asyncio atexit base64 bisect builtins bz2 calendar codecs collections
	concurrent configparser contextlib copy csv
	ctypes dataclasses datetime decimal difflib enum errno faulthandler fcntl fileinput fnmatch fractions functools gc
	getpass glob gzip hashlib heapq html http
	importlib inspect io itertools json keyword linecache locale logging lzma math mimetypes mmap multiprocessing
	numbers operator os pathlib pickle platform
	pprint queue random re resource sched secrets select shelve shlex shutil signal site socket sqlite3 ssl stat
	statistics string struct sys sysconfig tarfile
	tempfile textwrap threading time timeit tokenize tomllib traceback types typing unicodedata unittest urllib uuid
	warnings weakref xml zipfile zlib zoneinfo
	torch torchvision torchaudio torchtext torchdata torchmetrics torchao torch_geometric transformers datasets
	tokenizers accelerate peft trl unsloth unsloth_zoo
	bitsandbytes deepspeed safetensors evaluate huggingface_hub sentencepiece tiktoken optimum flash_attn xformers
	liger_kernel apex triton einops
	lightning pytorch_lightning lightning_fabric numpy scipy pandas sklearn pyarrow polars matplotlib seaborn PIL cv2
	tqdm rich wandb tensorboard tensorboardX
	mlflow comet_ml neptune yaml toml tomli omegaconf hydra fire click typer tyro absl simple_parsing pydantic attr
	attrs psutil requests dotenv loguru regex nltk
	spacy jsonlines orjson ujson h5py zarr lmdb webdataset librosa soundfile sacrebleu rouge_score jiwer seqeval faiss
	timm open_clip sentence_transformers
	gymnasium gym packaging typing_extensions more_itertools boto3 fsspec smart_open galore_torch lion_pytorch
	schedulefree prodigyopt came_pytorch adam_mini
	dion muon torch_optimizer pynvml nvitop vllm setproctitle termcolor colorama tabulate IPython ipdb pdb streaming`

// unseen is a module that the script imports and nobody has read: neither a file that is here nor a package that leaves
// the script in charge. "" when there is none.
func (t *sourceText) unseen() string {
	for _, f := range t.files[:1] {
		for _, i := range f.Imports {
			root, _, _ := strings.Cut(i.Module, ".")
			read := slices.ContainsFunc(t.files, func(file *sourceFile) bool {
				return file.module != "" && (file.module == i.Module || file.module == i.Module+"."+i.Name)
			})
			if !read && !containsWord(plainPackages, root) {
				return i.Module
			}
		}
	}
	return ""
}

// loadsByName says where the script loads code that only its arguments name; "" when it does not.
func (t *sourceText) loadsByName() string {
	for _, c := range t.calls("importlib.import_module", "__import__", "hydra.utils.instantiate", "utils.instantiate",
		"instantiate_from_config", "get_obj_from_str") {
		return c.origin() + " loads code by its name, which is not followed"
	}
	return ""
}

// trainingCalls are the calls at module level, and in functions that train: where a gradient is computed, by backward
// or by a scaler. Those of a function that only evaluates are none.
func (t *sourceText) trainingCalls(names ...string) []foundCall {
	var found []foundCall
	for _, c := range t.calls(names...) {
		trains := c.Scope == "" || slices.ContainsFunc(c.file.Calls, func(other *python.Call) bool {
			return other.Scope == c.Scope && python.EndsIn(other.Callee, "backward", "manual_backward")
		})
		if trains {
			found = append(found, c)
		}
	}
	return found
}

// checkpointsItself reports whether a script with a trainer of a library turns checkpointing on past it, in its own
// words.
func (r *reader) checkpointsItself() bool {
	if !r.family.ownScript || r.seen() == nil {
		return false
	}
	if r.seen().mentions("checkpointing", "checkpoint_wrapper", "utils.checkpoint", "checkpoint.checkpoint") ||
		r.hasNames("grad_checkpoint") {
		return true
	}
	for _, f := range r.seen().files {
		for _, a := range f.Assignments {
			base, name, dotted := cutLast(a.Target)
			if dotted && name == "gradient_checkpointing" && !isArgumentsName(base) {
				return true
			}
		}
	}
	return false
}

// parsesClass reports whether the script's parser is given a dataclass of that name.
func (t *sourceText) parsesClass(name string) bool {
	for _, c := range t.calls(dataclassParsers()...) {
		if slices.Contains(namesIn(c.Args), name) {
			return true
		}
	}
	return false
}
