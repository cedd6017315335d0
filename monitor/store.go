package monitor

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Names of the files of a run folder. Everything but run.json and the reports is append-only, so that a machine that loses power
// leaves a readable run.
const (
	metaFile    = "run.json"
	samplesFile = "samples.jsonl"
	stagesDir   = "stages"
)

// folderTime begins a run folder's name, so that names sort by time.
const folderTime = "20060102T150405.000Z"

// Store is one run's folder on disk, or one node's part of it.
type Store struct {
	Dir string
	// Run is the folder of the whole run when Dir is one node's part of it; else "".
	Run string
}

// CreateRun makes a new run folder `<utc time>-<id>` under root. The error names the folder and what to do about it.
func CreateRun(root string, now time.Time) (*Store, error) {
	var id [3]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("make a run id: %w", err)
	}
	dir := filepath.Join(root, now.UTC().Format(folderTime)+"-"+hex.EncodeToString(id[:]))
	if err := os.MkdirAll(filepath.Join(dir, stagesDir), 0o755); err != nil {
		return nil, fmt.Errorf("make the run folder: %w (choose another place with --dir or OOMGUARD_DIR)", err)
	}
	return &Store{Dir: dir}, nil
}

// ID is the name of the run's folder.
func (s *Store) ID() string {
	if s.Run != "" {
		return filepath.Base(s.Run)
	}
	return filepath.Base(s.Dir)
}

// recorded tells whether there is a run in the folder.
func (s *Store) recorded() bool {
	_, err := os.Stat(filepath.Join(s.Dir, metaFile))
	return err == nil
}

// WriteJSON writes one document of the run folder as a whole: to a temporary name first, so that a reader never sees half of it.
func (s *Store) WriteJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return s.WriteFile(name, append(data, '\n'))
}

// WriteFile is WriteJSON for bytes that are ready.
func (s *Store) WriteFile(name string, data []byte) error {
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// WriteMeta writes run.json.
func (s *Store) WriteMeta(meta any) error { return s.WriteJSON(metaFile, meta) }

// ReadMeta reads run.json into meta.
func (s *Store) ReadMeta(meta any) error { return s.ReadJSON(metaFile, meta) }

// ReadJSON reads what WriteJSON wrote.
func (s *Store) ReadJSON(name string, value any) error {
	path := filepath.Join(s.Dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the run: %w", err)
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// ErrNoRun says that there is no such run.
var ErrNoRun = errors.New("no such run")

// Open finds a run: "" or "last" is the newest under root, anything else a folder's path (also that of one node's part), its name
// under root, or the unique end of its name.
func Open(root, name string) (*Store, error) {
	if name != "" && name != "last" {
		for _, dir := range []string{filepath.Clean(name), filepath.Join(root, name)} {
			if r := (&Store{Dir: dir}); r.recorded() || len(r.Nodes()) > 0 {
				return r, nil
			}
		}
	}
	runs, err := List(root)
	if err != nil {
		return nil, err
	}
	if name == "" || name == "last" {
		if len(runs) == 0 {
			return nil, fmt.Errorf("%w: %s holds none yet", ErrNoRun, root)
		}
		return runs[len(runs)-1], nil
	}
	var found []*Store
	for _, r := range runs {
		if r.ID() == name || strings.HasSuffix(r.ID(), name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("%w: %q is neither a run folder nor the name of one under %s", ErrNoRun, name, root)
	}
	return nil, fmt.Errorf("%w: %q fits %d runs under %s; give more of the name", ErrNoRun, name, len(found), root)
}

// List gives the runs under root, oldest first. A root that does not exist holds none.
func List(root string) ([]*Store, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	var runs []*Store
	for _, e := range entries {
		if r := (&Store{Dir: filepath.Join(root, e.Name())}); r.recorded() || len(r.Nodes()) > 0 {
			runs = append(runs, r)
		}
	}
	sort.Slice(runs, func(i, j int) bool { return runs[i].ID() < runs[j].ID() })
	return runs, nil
}

// appendFile opens a file of the run folder for appending, below sub ("" for the folder itself).
func (s *Store) appendFile(elem ...string) (*os.File, error) {
	path := filepath.Join(append([]string{s.Dir}, elem...)...)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("record the run: %w", err)
	}
	return f, nil
}
