package launcher

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeftOnPurpose: ranks that a script leaves behind and then ends in good order go on, as they would without us;
// those of a launcher that was killed or failed are ended, whatever the script around it returns.
func TestLeftOnPurpose(t *testing.T) {
	const ranks = `for r in 0 1; do RANK=$r LOCAL_RANK=$r setsid "$0" program:rank "exit 1" & done; read x <$GATE; `
	for _, test := range []struct {
		name, script string
		want         string
	}{
		{"a script that starts them", ranks + `exit 0`, LeftAlone},
		{"a script in a script", `bash -c "$RANKS exit 0" "$0"; exit 0`, LeftAlone},
		{"a script in a script, and the outer one lives longer", `bash -c "$RANKS exit 0" "$0"; read x <$GATE; exit 0`,
			LeftAlone},
		{"their launcher goes on", `bash -c "$RANKS wait" "$0" & read x <$GATE; exit 0`, LeftAlone},
		{"a launcher that fails", `bash -c "$RANKS exit 3" "$0"; exit 0`, Terminated},
		{"a launcher that is killed", `bash -c "$RANKS kill -KILL \$\$" "$0"; exit 0`, Terminated},
		{"a script that fails", ranks + `exit 4`, Terminated},
		{"a script that is killed", ranks + `kill -KILL $$`, Terminated},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			gate := fifo(t)
			s := supervise(t, []string{"bash", "-c", test.script, program("rank")[0]},
				with("RANKS="+ranks, "GATE="+gate, "GRACE=1h"))
			pids := []int{s.pid("rank 0 pid"), s.pid("rank 1 pid")}
			for _, pid := range pids {
				t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
			}
			s.hear("seen 2")
			// one line for each who waits: a shell reads no more than its own
			opened, err := os.OpenFile(gate, os.O_RDWR, 0)
			s.must(err)
			defer opened.Close()
			_, err = opened.WriteString("go\ngo\n")
			s.must(err)
			_, exit := s.wait()
			actions := map[int]string{}
			for _, survivor := range exit.Survivors {
				if survivor.Rank >= 0 {
					actions[survivor.PID] = survivor.Action
				}
			}
			for _, pid := range pids {
				if actions[pid] != test.want {
					t.Errorf("rank %d: %q, want %q; survivors %+v", pid, actions[pid], test.want, exit.Survivors)
				}
				if lives := unix.Kill(pid, 0) == nil; lives != (test.want == LeftAlone) {
					t.Errorf("rank %d lives: %v", pid, lives)
				}
			}
			if test.want == LeftAlone && (!exit.Clean() || exit.Code != 0) {
				t.Errorf("not a good end: %+v", exit)
			}
			if test.want == Terminated {
				s.hear("left behind 2")
			}
		})
	}
}
