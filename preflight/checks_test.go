package preflight

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"oomguard/checklists"
	"oomguard/launcher/files"
	"oomguard/preflight/allocconf"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
	"oomguard/preflight/plan"
)

const gib = int64(1) << 30

func set[T any](v T) job.Setting[T] { return job.Setting[T]{Value: v, Known: true, Origin: "test"} }

func bytesPtr(n int64) *int64 { return &n }

// healthy is a job on two 80 GiB GPUs that passes every check.
func healthy() Facts {
	j := &job.Job{
		Argv:       []string{"torchrun", "--nproc-per-node=2", "train.py", "--lr", "1"},
		ScriptArgs: []string{"--lr", "1"},
		Launcher:   set("torchrun"), Script: set("train.py"), Model: set("gpt2"), Method: set("full"),
		ModelParams: set(int64(4e9)),
		NProc:       set(2), WorldSize: set(2), MicroBatch: set(8), SeqLen: set(1024),
		ParamDtype: set("bf16"), Optimizer: set("adamw"), Checkpointing: set("none"), Sharding: set("ddp"),
		Interpreter: "/venv/bin/python", Versions: map[string]string{"torch": "2.6.0"},
	}
	var parts estimate.Components
	parts[estimate.Activations], parts[estimate.Parameters] = 25*gib, 15*gib
	e := &estimate.Estimate{
		Model: estimate.ModelSize{Name: "gpt2", Parameters: 4e9, TrainableParameters: 4e9},
		GPU:   estimate.GPUSize{Name: "H100 SXM 80GB", Kind: "cuda", Count: 2, TotalBytes: 80 * gib},
		PerGPU: estimate.PerGPU{DeviceBytes: 40 * gib, ReservedBytes: 38*gib + gib/2, LowBytes: 38 * gib,
			HighBytes: bytesPtr(44 * gib), PeakStage: estimate.Backward, Components: parts},
		Bottleneck: "activations",
	}
	gpu := func(i int) Device {
		return Device{Index: i, UUID: fmt.Sprintf("GPU-%d%d", i, i), Name: "NVIDIA H100", TotalBytes: 80 * gib,
			FreeBytes: 79 * gib,
			UsedBytes: gib / 4, MemoryKnown: true, ProcessesKnown: true, ComputeMode: "default"}
	}
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return Facts{
		Mode: ModeRun, Job: j, Estimate: e,
		Remedies: []plan.Remedy{
			{ID: "grad-accum", How: "take a smaller batch", SavesBytes: bytesPtr(5 * gib)},
			{ID: "checkpointing", How: "turn on checkpointing", SavesBytes: bytesPtr(9 * gib)},
			{ID: "lora", How: "train adapters", SavesBytes: bytesPtr(30 * gib)},
		},
		Devices: []Device{gpu(0), gpu(1)},
		History: []Earlier{
			{Run: "r1", When: when, JobKey: JobKey(j), RemedyKey: RemedyKey(j), Measured: true, PeakBytes: 41 * gib,
				Bottleneck: "logits", Outcome: OutcomeOK, Small: true},
			{Run: "r0", When: when.Add(-time.Hour), JobKey: JobKey(j), Measured: true},
		},
		Env:       map[string]string{},
		Command:   Lookup{Name: "torchrun", Path: "/venv/bin/torchrun"},
		Script:    Lookup{Name: "train.py", Path: "/src/train.py"},
		RunFolder: Folder{Path: "oomguard-runs", FreeBytes: 100 * gib},
		Weights: Weights{Read: &model.Weights{Files: make([]model.WeightFile, 4), Bytes: 16 * gib,
			Tensors: make([]model.StoredTensor, 291)}},
		Host: Host{MemTotalBytes: 512 * gib, MemAvailableBytes: 500 * gib, ShmTotalBytes: 256 * gib,
			ShmFreeBytes: 256 * gib,
			DriverFiles:  []string{"/dev/nvidia0"}},
	}
}

// judgement is one row: facts that differ from the healthy ones, and what one check must say to them.
type judgement struct {
	id, name string
	change   func(*Facts)
	want     checklists.Status
	says     []string // parts of Detail or Remedy
}

func judgements() []judgement {
	return slices.Concat(jobJudgements(), gpuJudgements(), hostJudgements())
}

func verdictOf(t *testing.T, id string, f Facts) checklists.Verdict {
	t.Helper()
	list := checklists.List{Name: "one", Entries: []checklists.Entry{{ID: id, Severity: checklists.Fail}}}
	o, err := checklists.Run(list, Checks(), f, checklists.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return o.Results[0].Verdict
}

func TestJudgements(t *testing.T) {
	for _, tt := range judgements() {
		t.Run(tt.id+"/"+tt.name, func(t *testing.T) {
			f := healthy()
			tt.change(&f)
			v := verdictOf(t, tt.id, f)
			if v.Status != tt.want {
				t.Errorf("%s, want %s: %s", v.Status, tt.want, v.Detail)
			}
			for _, part := range tt.says {
				if !strings.Contains(v.Detail+"\n"+v.Remedy, part) {
					t.Errorf("%q missing in:\n%s\n%s", part, v.Detail, v.Remedy)
				}
			}
		})
	}
}

func TestHealthyPassesEveryCheck(t *testing.T) {
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	o, err := checklists.Run(list, Checks(), healthy(), checklists.Policy{FailOn: checklists.Warn})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range o.Results {
		if r.Status != checklists.Pass || r.Detail == "" {
			t.Errorf("%s: %+v", r.ID, r.Verdict)
		}
	}
}

// TestEveryStatusIsReached: the table shows how each check comes to each status that it can come to.
func TestEveryStatusIsReached(t *testing.T) {
	reached := map[string]map[checklists.Status]bool{}
	for _, c := range Checks() {
		reached[c.ID] = map[checklists.Status]bool{checklists.Pass: true} // TestHealthyPassesEveryCheck
	}
	for _, tt := range judgements() {
		reached[tt.id][tt.want] = true
	}
	for id, statuses := range reached {
		if !statuses[checklists.Warn] && !statuses[checklists.Fail] && id != "parts-measured" &&
			id != "bottleneck-known" {
			t.Errorf("no row shows %s fail or warn", id)
		}
		if !statuses[checklists.Skip] && id != "total-estimated" && id != "cuda-visible-devices" && id != "alloc-conf" {
			t.Errorf("no row shows %s skip", id)
		}
	}
}

// TestEveryVerdictIsExplained mixes the changes of the table at random: whatever the facts, each verdict says what was
// found, and each that is not a pass what to do.
func TestEveryVerdictIsExplained(t *testing.T) {
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	all := judgements()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		f := healthy()
		var names []string
		for range random.IntN(5) {
			change := all[random.IntN(len(all))]
			if f.Job == nil || f.Estimate == nil || len(f.Devices) < 2 || len(f.History) < 2 {
				break // changes rely on the healthy facts
			}
			names = append(names, change.id+"/"+change.name)
			change.change(&f)
		}
		f.Mode = []Mode{ModeRun, ModeCheck}[random.IntN(2)]
		o, err := checklists.Run(list, Checks(), f, checklists.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Results {
			if r.Detail == "" || (r.Status != checklists.Pass && r.Remedy == "") ||
				strings.Contains(r.Detail+r.Remedy, "%!") {
				t.Fatalf("%s after %v: %+v", r.ID, names, r.Verdict)
			}
		}
	}
}

// TestNothingKnown: the checks judge the zero facts too, and refuse nothing because of mere ignorance.
func TestNothingKnown(t *testing.T) {
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{ModeRun, ModeCheck} {
		o, err := checklists.Run(list, Checks(), Facts{Mode: mode}, checklists.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Results {
			if r.Detail == "" || (r.Status != checklists.Pass && r.Remedy == "") || r.Status == checklists.Fail {
				t.Errorf("%s in mode %s: %+v", r.ID, mode, r.Verdict)
			}
		}
	}
}

// TestChecklistMatchesCode: the built-in list names every check once, and spells out every threshold with its default.
func TestChecklistMatchesCode(t *testing.T) {
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	inCode := map[string]checklists.Params{}
	for _, c := range Checks() {
		if _, twice := inCode[c.ID]; twice || c.ID == "" || c.Title == "" {
			t.Errorf("id or title of %q is empty or not unique", c.ID)
		}
		inCode[c.ID] = c.Defaults
		file := "check_" + strings.ReplaceAll(c.ID, "-", "_") + ".go"
		if _, err := os.Stat(file); err != nil {
			t.Errorf("check %s is not in %s", c.ID, file)
		}
	}
	inList := map[string]checklists.Params{}
	for _, e := range list.Entries {
		inList[e.ID] = e.With
	}
	if a, b := slices.Sorted(maps.Keys(inCode)), slices.Sorted(maps.Keys(inList)); !slices.Equal(a, b) {
		t.Errorf("checks in code %v\nin pretraining.yaml %v", a, b)
	}
	for id, defaults := range inCode {
		if len(defaults)+len(inList[id]) > 0 && !reflect.DeepEqual(defaults, inList[id]) {
			t.Errorf("%s: thresholds in code %v, in pretraining.yaml %v", id, defaults, inList[id])
		}
	}
}

// TestSixQuestionsNeverRefuse: the user's own questions are answered, and a run is never refused for them.
func TestSixQuestionsNeverRefuse(t *testing.T) {
	six := []string{"total-estimated", "parts-measured", "bottleneck-known", "remedy-chosen", "headroom-kept",
		"remedy-tried-small"}
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range six {
		if e := list.Entries[i]; e.ID != id || e.Severity != checklists.Warn {
			t.Errorf("entry %d is %+v, want %s as a warning", i, e, id)
		}
	}
	for _, tt := range judgements() {
		if slices.Contains(six, tt.id) && tt.want == checklists.Fail {
			t.Errorf("%s/%s fails", tt.id, tt.name)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

func TestRefusedOutcomeText(t *testing.T) {
	f := healthy()
	f.Estimate.PerGPU.DeviceBytes, f.Estimate.PerGPU.HighBytes = 75*gib, bytesPtr(78*gib)
	f.Devices[1].FreeBytes, f.Devices[1].UsedBytes = 60*gib, 19*gib
	f.Devices[1].Processes = []Process{{PID: 4711, Name: "python3", UsedBytes: 18 * gib, Known: true, Ours: true}}
	f.Env["CUDA_VISIBLE_DEVICES"] = "0, 1"
	f.AllocProblems = []allocconf.Problem{{Severity: "fail", Key: "expandeable_segments", Text: "no such option",
		Remedy: "write expandable_segments"}}
	f.Command.Err = errors.New("executable file not found in $PATH")
	f.History = nil
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	o, err := checklists.Run(list, Checks(), f,
		checklists.Policy{Skip: []string{"shm"}, Waive: []string{"command-found"}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range o.Results {
		waived := ""
		if r.Waived {
			waived = " (waived)"
		}
		fmt.Fprintf(&b, "%-4s %s%s: %s\n", r.Status, r.ID, waived, r.Detail)
		if r.Remedy != "" {
			fmt.Fprintf(&b, "     do: %s\n", r.Remedy)
		}
	}
	fmt.Fprintf(&b, "\noutcome: %s\n\n%v\n", o.Outcome, o.Err())
	golden := filepath.Join("testdata", "refused.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("text changed (go test ./preflight -run Refused -update writes it anew); got:\n%s", b.String())
	}
}

// TestVerdictsAgree: where headroom fails, no other check of the same estimate is content, and on a machine without a
// GPU none speaks of one.
func TestVerdictsAgree(t *testing.T) {
	list, err := checklists.Load("pretraining", files.Read)
	if err != nil {
		t.Fatal(err)
	}
	about := []string{"total-estimated", "bottleneck-known", "remedy-chosen", "headroom-kept", "headroom"}
	for _, component := range append(estimate.ComponentNames(), "") {
		for _, remedies := range [][]plan.Remedy{nil, {{ID: "offload", How: "x"}},
			{{ID: "checkpointing", How: "x"}, {ID: "sharding"}}} {
			for _, need := range []int64{40 * gib, 70 * gib, 75 * gib, 79 * gib, 100 * gib} {
				for _, least := range []float64{0, 5, 30} {
					for name, kind := range map[string]func(*Facts){"GPU": func(*Facts) {}, "CPU": onCPU} {
						f := healthy()
						needBytes(need)(&f)
						kind(&f)
						f.Estimate.Bottleneck, f.Remedies, f.HeadroomPercent = component, remedies, least
						o, err := checklists.Run(list, Checks(), f, checklists.Policy{})
						if err != nil {
							t.Fatal(err)
						}
						status := map[string]checklists.Status{}
						for _, r := range o.Results {
							status[r.ID] = r.Status
							if name == "CPU" && slices.Contains(about, r.ID) &&
								strings.Contains(r.Detail+r.Remedy, "GPU") {
								t.Errorf("without a GPU %s says %q, %q", r.ID, r.Detail, r.Remedy)
							}
						}
						for _, id := range []string{"remedy-chosen", "headroom-kept"} {
							if status["headroom"] == checklists.Fail && status[id] == checklists.Pass {
								t.Errorf("%s of %s, %d bytes, %g %%: headroom fails and %s passes", component, name,
									need, least, id)
							}
						}
					}
				}
			}
		}
	}
}
