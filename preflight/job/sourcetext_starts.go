package job

import (
	"fmt"
	"strings"
)

// spawnCalls are the calls that start a known number of processes.
func (t *sourceText) spawnCalls() []foundCall {
	return t.calls("multiprocessing.spawn", "multiprocessing.start_processes", "notebook_launcher")
}

// starters are packages that start the ranks of a script that imports them: clusters, submitters, and trainers that
// spawn. Lightning is none of them: its devices and nodes are read.
const starters = `ray sagemaker submitit dask dask_cuda horovod pyspark joblib modal skypilot sky azureml azure kfp
	kubeflow metaflow flytekit
	runhouse determined clearml torchx ignite detectron2 ultralytics fairscale colossalai nemo nemo_run fairseq espnet
	espnet2 mmengine mmcv
	torch_xla fastai dora multiprocess`

// starterCalls are what plain libraries start processes with.
func starterCalls() []string {
	return []string{"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "os.system",
		"os.fork", "os.popen", "os.execvp", "os.execv", "os.spawnv", "multiprocessing.Process", "mp.Process",
		"elastic_launch", "launch_agent",
		"torch.distributed.run.main", "torch.distributed.run.run", "distributed.launch.main", "debug_launcher"}
}

// starter says what in the script may start its ranks; "" when nothing does.
func (t *sourceText) starter() string {
	for _, f := range t.files {
		for _, i := range f.Imports {
			root, _, _ := strings.Cut(i.Module, ".")
			whole := i.Module + "." + i.Name + "."
			if containsWord(starters, root) || strings.HasPrefix(whole, "torch.distributed.run.") ||
				strings.HasPrefix(whole, "torch.distributed.launch") {
				return fmt.Sprintf("%s imports %s, which may start the processes", f.at(i.Line), i.Module)
			}
		}
	}
	if calls := t.calls(starterCalls()...); len(calls) > 0 {
		return fmt.Sprintf("%s calls %s, which may start the processes", calls[0].origin(), calls[0].Callee)
	}
	return ""
}
