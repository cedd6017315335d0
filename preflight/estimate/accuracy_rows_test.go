package estimate

import (
	"encoding/json"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A measuredRow is one public measurement by a third party, with every setting that its source states. An absent field
// was not stated. testdata/measured/single.json and sharded.json hold them; confidence says how far the source may be
// trusted.
type measuredRow struct {
	ID     string `json:"id"`
	Group  string `json:"group"`
	Source string `json:"source"`
	Model  string `json:"model"`
	Dims   struct {
		Params       int64           `json:"params"`
		Hidden       int64           `json:"hidden"`
		Layers       json.RawMessage `json:"layers"` // a number, or "24+24" for an encoder and a decoder
		Heads        int64           `json:"heads"`
		KVHeads      int64           `json:"kv_heads"`
		HeadDim      int64           `json:"head_dim"`
		Intermediate int64           `json:"intermediate"`
		Vocab        int64           `json:"vocab"`
		Tied         bool            `json:"tied"`
		Experts      int64           `json:"experts"`
		ConfigFile   string          `json:"config_file"`
	} `json:"model_dims"`
	GPU struct {
		Name string  `json:"name"`
		GiB  float64 `json:"gib"`
	} `json:"gpu"`
	GPUs          int             `json:"n_gpus"`
	Method        string          `json:"method"`
	LoRARank      int             `json:"lora_rank"`
	LoRATargets   []string        `json:"lora_targets"`
	Quantization  string          `json:"quantization"`
	Precision     string          `json:"precision"`
	Optimizer     string          `json:"optimizer"`
	Sharding      string          `json:"zero_or_fsdp"`
	TP            int             `json:"tensor_parallel"`
	PP            int             `json:"pipeline_parallel"`
	CP            int             `json:"context_parallel"`
	EP            int             `json:"expert_parallel"`
	Offload       string          `json:"offload"`
	MicroBatch    int             `json:"micro_batch_per_gpu"`
	GradAccum     int             `json:"grad_accum"`
	SeqLen        json.RawMessage `json:"seq_len"` // a number, or words
	Checkpointing string          `json:"activation_checkpointing"`
	Attention     string          `json:"attention_impl"`
	FusedLoss     string          `json:"fused_loss"`
	Compile       bool            `json:"torch_compile"`
	Bytes         int64           `json:"measured_bytes"` // 0: the unit of the printed value is not known
	What          string          `json:"what_was_measured"`
	Also          struct {
		FirstStepPeak float64 `json:"first_step_peak"` // bytes
		EndBytes      int64   `json:"torch_allocated_end_bytes"`
		DeviceMiB     float64 `json:"nvidia_smi_peak_mib"`
	} `json:"also_measured"`
	Framework  string          `json:"framework"`
	Confidence string          `json:"confidence"`
	Notes      string          `json:"notes"`
	Stage      string          `json:"stage"`
	RunID      string          `json:"run_id"`
	Rank       string          `json:"rank"`
	RunArgs    json.RawMessage `json:"run_args"` // Megatron's arguments, DeepSpeed's buckets, or a sentence

	file string
}

// measuredRows reads one of the two files of public measurements.
func measuredRows(t testing.TB, file string) []measuredRow {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "measured", file))
	if err != nil {
		t.Fatal(err)
	}
	var rows []measuredRow
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for i := range rows {
		rows[i].file = file
	}
	return rows
}

// heldOut keeps a third of the rows away from tuning: all rows of a run, and all runs that differ only in batch, length
// or rank of the adapters, are on the same side.
func (r measuredRow) heldOut() bool {
	siblings := strings.Join([]string{r.Group, r.Model, r.Method, r.Sharding, r.Quantization}, "|")
	h := fnv.New32a()
	_, _ = h.Write([]byte(siblings)) // never fails (hash.Hash)
	return h.Sum32()%3 == 0
}

// quantity is what kind of memory the row's figure is; "" when its source does not say.
func (r measuredRow) quantity() string {
	for _, q := range []struct{ words, quantity string }{
		{"memory_allocated", "allocated"},
		{"max active", "active"},
		{"peak memory (torchtune", "active"},
		{"max_memory_reserved (about", ""},
		{"max_memory_reserved", "reserved"},
		{"nvidia-smi (probably", ""},
		{"nvidia-smi", "device"},
	} {
		if strings.HasPrefix(r.What, q.words) || q.quantity == "allocated" && strings.Contains(r.What, q.words) {
			return q.quantity
		}
	}
	return ""
}

// script is an argument of the run's own command line, from what the source prints of it: the arguments, or a sentence
// that names some.
func (r measuredRow) script(name string) (string, bool) {
	var args map[string]any
	var sentence string
	if json.Unmarshal(r.RunArgs, &sentence) == nil {
		return "", strings.Contains(strings.ToLower(sentence), strings.ToLower(name))
	}
	if json.Unmarshal(r.RunArgs, &args) != nil {
		return "", false
	}
	switch v := args[name].(type) {
	case nil:
		return "", false
	case string:
		return v, true
	default:
		text, err := json.Marshal(v)
		return string(text), err == nil
	}
}

// number is a numeric argument of the run's command line, or 0.
func (r measuredRow) number(name string) int64 {
	var n int64
	if text, ok := r.script(name); ok && json.Unmarshal([]byte(text), &n) == nil {
		return n
	}
	return 0
}

// layers is the number of layers that the row states, or 0.
func (r measuredRow) layers() int64 {
	var n int64
	if json.Unmarshal(r.Dims.Layers, &n) != nil {
		return 0
	}
	return n
}
