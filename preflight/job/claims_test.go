package job

import (
	"os"
	"path/filepath"
	"testing"
)

// One claim of each setting is used, and it is what the setting says; a flag of oomguard's wins over everything.
func TestWhy(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no jobs: %v", err)
	}
	several := 0
	for _, dir := range folders {
		src := jobSources(t, dir)
		src.Flags = map[string]string{"micro-batch": "3", "attention": "eager"}
		j := Read(src)
		for _, setting := range j.Settings() {
			claims, ok := j.Why(setting.Key)
			if !ok {
				t.Fatalf("no claims of %s", setting.Key)
			}
			if len(claims) > 1 {
				several++
			}
			var used []Claim
			for _, c := range claims {
				if c.Used {
					used = append(used, c)
				}
			}
			if len(used) != 1 || used[0].Value != setting.Value || used[0].Origin != setting.Origin {
				t.Errorf("%s: %s is %s (%s), and used are %v", filepath.Base(dir), setting.Key, setting.Value,
					setting.Origin, used)
			}
			if _, flag := src.Flags[map[string]string{"micro_batch": "micro-batch",
				"attention": "attention"}[setting.Key]]; flag && used[0].Source != sourceFlags {
				t.Errorf("%s: %s is not the flag's: %v", filepath.Base(dir), setting.Key, claims)
			}
		}
	}
	if several < len(folders) {
		t.Errorf("only %d settings have several claims", several)
	}
	if _, ok := (&Job{}).Why("nothing"); ok {
		t.Error("a key that does not exist has claims")
	}
}

// Every source of the order has its turn in a reading.
func TestOrder(t *testing.T) {
	known := map[string]bool{}
	for _, o := range Order() {
		known[o.Source] = true
	}
	seen := map[string]bool{}
	readAll := func(j *Job) {
		for _, s := range j.Settings() {
			claims, _ := j.Why(s.Key)
			for _, c := range claims {
				if !known[c.Source] {
					t.Errorf("%s: a claim of %q, which is not in the order", s.Key, c.Source)
				}
				seen[c.Source] = true
			}
		}
	}
	folders, _ := filepath.Glob(filepath.Join("testdata", "jobs", "*"))
	for _, dir := range folders {
		src := jobSources(t, dir)
		src.Flags = map[string]string{"seq-len": "128"}
		readAll(Read(src))
	}
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "oomguard.yaml"), []byte("seq_len: 64\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	readAll(Read(Sources{Argv: []string{"torchrun", "train.py"}, Dir: own}))
	for source := range known {
		if !seen[source] {
			t.Errorf("%s never claims anything", source)
		}
	}
}
