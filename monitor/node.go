package monitor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"oomguard/launcher/files"
)

// Node is the part of a run that one oomguard watches, where several of them record one run: one a node, or one a task.
type Node struct {
	// Key is what the parts of one run have in common and no other run at the same time has ("slurm-1234.0"): they find
	// each other's folder by it, without a network.
	Key string `json:"key"`
	// Unique: no later run will have the key either. Others (the name of a rendezvous) are used again.
	Unique bool `json:"unique"`
	// Name is the part's own among them: the node's rank, or its host's name. Its folder is "node-<name>".
	Name string `json:"name"`
	// Rank is the node's rank, -1 when nothing but the rendezvous gives it one.
	Rank int `json:"rank"`
	// Parts is how many the run has at least, MostParts at most (they differ for an elastic run).
	Parts     int `json:"parts"`
	MostParts int `json:"most_parts"`

	// What the scheduler calls the run; "" where there is none or it does not say.
	Scheduler string `json:"scheduler,omitempty"` // slurm, kubernetes
	Job       string `json:"job,omitempty"`
	Step      string `json:"step,omitempty"`
	Attempt   int    `json:"attempt"` // how often the scheduler has started the job again
	Hosts     string `json:"hosts,omitempty"`
	Host      string `json:"host,omitempty"` // the scheduler's name of this node
	Pod       string `json:"pod,omitempty"`
	RunID     string `json:"run_id,omitempty"` // of the rendezvous

	// Restart counts the starts of this part within the run: 2 when its pod was replaced while the others went on.
	Restart int `json:"restart"`
	// ClockOffset is how much the clock of the run folder's file system is ahead of this node's, in seconds: times of
	// several nodes are compared on that clock.
	ClockOffset float64 `json:"clock_offset_seconds"`
}

const (
	nodePrefix = "node-"
	countMark  = "+"       // before the number of a part's later starts: a character that no name of ours has
	joinDir    = ".joined" // under the root of the runs: the name of each run's folder, by key
)

// rendezvousTimeout is how long torchrun waits for the other nodes (rdzv_configs timeout, 900 s,
// torch/distributed/run.py). A run in which nothing was written for longer is not the one that a node wants to join.
const rendezvousTimeout = 900 * time.Second

// JoinRun makes this node's folder in the folder of the run, which whoever comes first makes as `<utc time>-<key>`. The
// nodes need nothing but the shared file system to agree on it: the first one's symbolic link under a name made of the
// key decides, which every file system makes for one of them only; and a part belongs to who has made its folder. A key
// may come again: then its part is taken, and the run is a later one (in a Slurm step, the second command of a script),
// unless the others of the run still go on without this node.
func JoinRun(root string, now time.Time, node Node) (*Store, Node, error) {
	links := filepath.Join(root, joinDir)
	if err := ensure(links); err != nil {
		return nil, node, fmt.Errorf("make the run folder: %w (choose another place with --dir or OOMGUARD_DIR)", err)
	}
	key := fileName(node.Key)
	generation := 1
	if !node.Unique {
		generation = newest(links, key)
	}
	for ; ; generation++ {
		name := key
		if generation > 1 {
			name += countMark + strconv.Itoa(generation)
		}
		dir, err := agree(root, name, now)
		if err != nil {
			return nil, node, fmt.Errorf("make the run folder: %w (choose another place with --dir or OOMGUARD_DIR)",
				err)
		}
		store, restart, err := claim(dir, links, node)
		if err != nil {
			return nil, node, fmt.Errorf("make the node's part of the run folder: %w (choose another place with "+
				"--dir or OOMGUARD_DIR)", err)
		}
		if store != nil {
			node.Restart = restart
			if made, err := os.Stat(filepath.Join(store.Dir, stagesDir)); err == nil {
				node.ClockOffset = made.ModTime().Sub(now).Round(time.Millisecond).Seconds()
			}
			return store, node, nil
		}
	}
}

// newest is the latest generation of a key.
func newest(links, key string) int {
	latest := 1
	entries, _ := files.List(links)
	for _, e := range entries {
		if after, ok := strings.CutPrefix(e.Name(), key+countMark); ok {
			if n, err := strconv.Atoi(after); err == nil {
				latest = max(latest, n)
			}
		}
	}
	return latest
}

// agree gives the folder of the run of that name, whose name the first to come decides.
func agree(root, name string, now time.Time) (string, error) {
	link := filepath.Join(root, joinDir, name)
	base := now.UTC().Format(folderTime) + "-" + name
	err := os.Symlink(filepath.Join("..", base), link)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrExist):
		target, err := os.Readlink(link)
		if err != nil {
			return "", err
		}
		base = filepath.Base(target)
	default: // no symbolic links here, for none of the nodes: the name without the time is the same for all
		base = name
	}
	dir := filepath.Join(root, base)
	return dir, ensure(dir)
}

// ensure makes a folder where it is missing. It must not be a link.
func ensure(dir string) error {
	f, err := files.EnsureFolder(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// claim makes the node's own folder in that of the run; nil when this is not the node's run.
func claim(run, links string, node Node) (store *Store, restart int, err error) {
	own := nodePrefix + fileName(node.Name)
	parts := (&Store{Dir: run}).folders()
	if !slices.Contains(parts, own) && (full(parts, node.MostParts) || !node.Unique && silent(run, parts, links)) {
		return nil, 0, nil
	}
	for restart = 1; ; restart++ {
		name := own
		if restart > 1 {
			name += countMark + strconv.Itoa(restart)
		}
		dir := filepath.Join(run, name)
		store := &Store{Dir: dir, Run: run}
		err := store.make()
		if err == nil {
			return store, restart, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, 0, err
		}
		if ended(dir) == endedWell || !awaited(run, parts, own) || silent(run, parts, links) {
			return nil, 0, nil
		}
	}
}

// full tells whether all parts of a run are there.
func full(parts []string, most int) bool {
	names := map[string]bool{}
	for _, part := range parts {
		names[partName(part)] = true
	}
	return most > 0 && len(names) >= most
}

// partName is a part's name without the number of its start.
func partName(folder string) string {
	name, _, _ := strings.Cut(folder, countMark)
	return name
}

// silent tells whether no part of the run has written anything for so long that it cannot go on. Both times are the
// file system's.
func silent(run string, parts []string, links string) bool {
	if len(parts) == 0 {
		return false // its maker is about to make the first one
	}
	now, err := fileTime(links)
	if err != nil {
		return false
	}
	for _, part := range parts {
		for _, file := range []string{"", metaFile, samplesFile} {
			if info, err := os.Stat(filepath.Join(run, part, file)); err == nil &&
				now.Sub(info.ModTime()) < rendezvousTimeout {
				return false
			}
		}
	}
	return true
}

// fileTime is the time now by the clock of a folder's file system.
func fileTime(dir string) (time.Time, error) {
	f, err := files.OpenFolder(dir)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	return f.Clock()
}

// awaited tells whether another part of the run has not ended: it goes on, waiting for this node to come back.
func awaited(run string, parts []string, own string) bool {
	for _, part := range parts {
		if partName(part) != own && ended(filepath.Join(run, part)) == goesOn {
			return true
		}
	}
	return false
}

type ending int

const (
	goesOn ending = iota
	endedWell
	endedBadly
)

// ended reads of a part what its run.json says of its end.
func ended(dir string) ending {
	var meta struct {
		Refused bool `json:"refused"`
		Exit    *struct {
			Code int `json:"code"`
		} `json:"exit"`
	}
	if err := (&Store{Dir: dir}).ReadMeta(&meta); err != nil || meta.Exit == nil && !meta.Refused {
		return goesOn
	}
	if meta.Refused || meta.Exit.Code != 0 {
		return endedBadly
	}
	return endedWell
}

// fileName makes a text fit to be a file's name. One that had to be changed gets a trace of its own, so that two texts
// stay two names.
func fileName(text string) string {
	const most = 80
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, text)
	if clean == text && len(clean) <= most && !strings.HasPrefix(clean, ".") {
		return clean
	}
	sum := sha256.Sum256([]byte(text))
	return "_" + clean[:min(len(clean), most)] + "-" + hex.EncodeToString(sum[:4])
}

// folders are the names of the node folders in a run's folder.
func (s *Store) folders() []string {
	entries, err := files.List(s.Dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), nodePrefix) {
			out = append(out, e.Name())
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// byNumber sorts node-2 before node-10.
func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// Nodes gives the parts of a run that several nodes recorded; none for a run of one node.
func (s *Store) Nodes() []*Store {
	var out []*Store
	for _, name := range s.folders() {
		part := &Store{Dir: filepath.Join(s.Dir, name), Run: s.Dir}
		if part.recorded() {
			out = append(out, part)
		}
	}
	return out
}
