package job

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// A launchScript is a script of testdata/scripts with what a person reads in it.
type launchScript struct {
	name, text string
	args       []string
	files      map[string]string
	want       map[string]string // key of explain -> value; "?" is unknown
	src        Sources
}

// launchScripts reads testdata/scripts.
func launchScripts(t testing.TB) []launchScript {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join("testdata", "scripts", "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var all []launchScript
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			s := launchScript{
				name: strings.TrimSuffix(archive.Files[i].Name, ".sh"), text: string(archive.Files[i].Data),
				files: map[string]string{}, want: map[string]string{}, src: Sources{GPUs: -1},
			}
			env := map[string]string{"HOME": "/home/me"}
			for line := range strings.Lines(string(archive.Files[i+1].Data)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch key {
				case "env":
					name, text, _ := strings.Cut(value, "=")
					env[name] = text
				case "here":
					s.src.Place = Here
				case "gpus":
					s.src.GPUs, _ = strconv.Atoi(value)
				case "cpus":
					s.src.CPUs, _ = strconv.Atoi(value)
				case "args":
					s.args = strings.Fields(value)
				case "file":
					file, text, _ := strings.Cut(value, " ")
					s.files[file] = text + "\n"
				default:
					s.want[key] = value
				}
			}
			s.src.Getenv = func(name string) string { return env[name] }
			all = append(all, s)
		}
	}
	return all
}

func (s launchScript) read(t testing.TB) *Job {
	t.Helper()
	s.src.Dir = t.TempDir()
	s.files["run.sh"] = s.text
	for name, text := range s.files {
		if err := os.WriteFile(filepath.Join(s.src.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.src.Argv = append([]string{"bash", "run.sh"}, s.args...)
	return Read(s.src)
}

// Launch scripts with the idioms of public repositories are read as a person reads them, and none is refused.
func TestLaunchScripts(t *testing.T) {
	right, wrong, unknown, refused := 0, 0, 0, 0
	for _, s := range launchScripts(t) {
		t.Run(s.name, func(t *testing.T) {
			j := s.read(t)
			if len(j.Problems) > 0 {
				refused++
				t.Errorf("refused: %v", j.Problems)
			}
			for _, setting := range j.Settings() {
				want, asked := s.want[setting.Key]
				got := setting.Value
				if !setting.Known {
					got = "?"
				}
				switch {
				case !asked:
				case got == want:
					right++
				case got == "?":
					unknown++
					t.Errorf("%s is unknown, want %s: %s", setting.Key, want, setting.Origin)
				default:
					wrong++
					t.Errorf("%s: got %s (%s), want %s", setting.Key, got, setting.Origin, want)
				}
			}
			if !slices.ContainsFunc(j.Settings(), func(s Named) bool { return s.Key == "launcher" && s.Known }) {
				t.Errorf("no launcher: %s", j.Launcher.Origin)
			}
		})
	}
	t.Logf("%d keys right, %d wrong, %d unknown; %d scripts refused", right, wrong, unknown, refused)
}
