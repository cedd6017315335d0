package monitor

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"oomguard/launcher/files"
)

// Names of the files of a run folder. Everything but run.json and the reports is append-only, so that a machine that
// loses power leaves a readable run.
const (
	metaFile    = "run.json"
	samplesFile = "samples.jsonl"
	stagesDir   = "stages"
)

// maxMeta is far above any run.json: that of a node of 16 ranks has less than 1 MiB.
const maxMeta = 64 << 20

// folderTime begins a run folder's name, so that names sort by time.
const folderTime = "20060102T150405.000Z"

// Store is one run's folder on disk, or one node's part of it.
type Store struct {
	Dir string
	// Run is the folder of the whole run when Dir is one node's part of it; else "".
	Run string
	// Scrub takes the secrets out of what is written; nil knows only what a text gives away itself.
	Scrub *Scrubber `json:"-"`
}

// CreateRun makes a new run folder `<utc time>-<id>` under root. The error names the folder and what to do about it.
func CreateRun(root string, now time.Time) (*Store, error) {
	var id [3]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("make a run id: %w", err)
	}
	s := &Store{Dir: filepath.Join(root, now.UTC().Format(folderTime)+"-"+hex.EncodeToString(id[:]))}
	if err := files.Ensure(root); err != nil {
		return nil, fmt.Errorf("make the run folder: %w (choose another place with --dir or OOMGUARD_DIR)", err)
	}
	if err := s.make(); err != nil {
		return nil, fmt.Errorf("make the run folder: %w (choose another place with --dir or OOMGUARD_DIR)", err)
	}
	return s, nil
}

// TempRoot is where runs are recorded when their own root cannot be written: a folder of this user's among the
// temporary files, which are everybody's.
func TempRoot() (string, error) {
	f, err := files.EnsureFolder(filepath.Join(os.TempDir(), fmt.Sprintf("oomguard-runs-%d", os.Geteuid())))
	if err != nil {
		return "", fmt.Errorf("make a folder for the run among the temporary files: %w", err)
	}
	defer f.Close()
	if err := f.Private(); err != nil {
		return "", fmt.Errorf("make a folder for the run among the temporary files: %w", err)
	}
	return f.Path(), nil
}

// make makes the folder, which must be new.
func (s *Store) make() error {
	dir, err := files.NewFolder(s.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	stages, err := dir.Make(stagesDir)
	if err != nil {
		return err
	}
	return stages.Close()
}

// folder opens the run's folder, or one in it, for reading.
func (s *Store) folder(sub ...string) (*files.Folder, error) {
	f, err := files.OpenFolder(s.Dir)
	for _, name := range sub {
		if err != nil {
			break
		}
		above := f
		f, err = above.Folder(name)
		err = errors.Join(err, above.Close())
	}
	return f, err
}

// writable is folder for writing: it must be ours.
func (s *Store) writable(sub ...string) (*files.Folder, error) {
	f, err := s.folder(sub...)
	if err != nil {
		return nil, err
	}
	if err := f.Ours(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
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
	f, err := s.folder()
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Has(metaFile)
}

// WriteJSON writes one document of the run folder without secrets, as a whole: a reader never sees half of it.
func (s *Store) WriteJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, s.Scrub.JSON(data), "", "  "); err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	text.WriteByte('\n')
	return s.WriteFile(name, text.Bytes())
}

// WriteFile is WriteJSON for bytes that are ready, and have no secrets.
func (s *Store) WriteFile(name string, data []byte) error {
	f, err := s.writable()
	if err == nil {
		defer f.Close()
		err = f.Write(name, data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// WriteMeta writes run.json.
func (s *Store) WriteMeta(meta any) error { return s.WriteJSON(metaFile, meta) }

// ReadMeta reads run.json into meta.
func (s *Store) ReadMeta(meta any) error { return s.ReadJSON(metaFile, maxMeta, meta) }

// ReadJSON reads what WriteJSON wrote, unless it has more than limit bytes.
func (s *Store) ReadJSON(name string, limit int64, value any) error {
	data, err := s.ReadFile(name, limit)
	if err != nil {
		return fmt.Errorf("read the run: %w", err)
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(s.Dir, name), err)
	}
	return nil
}

// ReadFile reads what WriteFile wrote, unless it has more than limit bytes.
func (s *Store) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := s.folder()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Read(name, limit)
}

// ErrNoRun says that there is no such run.
var ErrNoRun = errors.New("no such run")

// Open finds a run: "" or "last" is the newest under root, anything else a folder's path (also that of one node's
// part), its name under root, or the unique end of its name.
func Open(root, name string) (*Store, error) {
	if name != "" && name != "last" {
		for _, dir := range []string{throughLinks(name), throughLinks(filepath.Join(root, name))} {
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

// throughLinks is where a name leads that a person gave.
func throughLinks(name string) string {
	name = filepath.Clean(name)
	if info, err := os.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if target, err := filepath.EvalSymlinks(name); err == nil {
			return target
		}
	}
	return name
}

// List gives the runs under root, oldest first. A root that does not exist holds none.
func List(root string) ([]*Store, error) {
	entries, err := files.List(root)
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

// appendFile opens a file of the run folder for appending: folders, and the file's name.
func (s *Store) appendFile(elem ...string) (*os.File, error) {
	last := len(elem) - 1
	dir, err := s.writable(elem[:last]...)
	if err != nil {
		return nil, fmt.Errorf("record the run: %w", err)
	}
	defer dir.Close()
	f, err := dir.Append(elem[last])
	if err != nil {
		return nil, fmt.Errorf("record the run: %w", err)
	}
	return f, nil
}
