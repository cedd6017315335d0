package monitor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"oomguard/launcher/files"
)

// A Private is a run's private folder, which only we and the ranks can enter: what the ranks report and print, secrets
// included, on its way into the run folder. It has one owner, the oomguard that watches the run and holds its lock,
// whoever else reads the run meanwhile. Those who write into it (the ranks' probes, the relay of the output) hold their
// own files. So a folder in which nothing is held is a left-over, of an oomguard that was killed.
//
// Nothing that a recorded run says of its private folder is believed: FindPrivate takes only what this package can have
// made, for this user, and only when the folder itself names the run.
type Private struct {
	Dir    string
	base   *files.Folder
	folder *files.Folder
	lock   *os.File // the owner's; nil: we are not the owner
}

const (
	// sharedMemory is a tmpfs on Linux: appending a line there costs about 1 µs and no disk.
	sharedMemory = "/dev/shm"
	// minFreeBytes is the room below which shared memory is left to the training: data loaders pass batches through it.
	minFreeBytes int64 = 64 << 20

	privatePrefix = "oomguard-"
	lockFile      = "lock" // the owner holds it
	ownerFile     = "run"  // names the run folder
	// OutputFile is what is known of the command's output: in the private folder as the relay copied it, in the run
	// folder without secrets. The line numbers of a post-mortem refer to it.
	OutputFile = "output.log"
)

// privateName is what TempFolder makes of the prefix.
var privateName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + privatePrefix + `\d+$`) })

// privateBases are the folders that private folders are made in: shared memory, when it is writable and has room, else
// where temporary files go.
func privateBases() []string {
	var bases []string
	for _, base := range []string{sharedMemory, os.TempDir()} {
		if resolved, err := filepath.EvalSymlinks(base); err == nil && !slices.Contains(bases, resolved) {
			bases = append(bases, resolved)
		}
	}
	return bases
}

// NewPrivate makes the private folder of a run, and holds it until Remove or until we are gone.
func NewPrivate(store *Store) (*Private, error) {
	var problem error
	for _, base := range privateBases() {
		if base == sharedMemory && freeBytes(base) <= minFreeBytes {
			continue
		}
		p, err := newPrivate(base, store)
		if err == nil {
			return p, nil
		}
		problem = err
	}
	return nil, fmt.Errorf("make a private folder for the run (set TMPDIR to a writable folder): %w", problem)
}

// freeBytes is the room on the file system of path, 0 when it cannot be asked.
func freeBytes(path string) int64 {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0
	}
	return int64(stat.Bavail) * int64(stat.Bsize) //nolint:unconvert // Bsize has other types on other systems
}

func newPrivate(base string, store *Store) (p *Private, err error) {
	run, err := filepath.Abs(store.Dir)
	if err != nil {
		return nil, err
	}
	folder, err := files.TempFolder(base, privatePrefix)
	if err != nil {
		return nil, err
	}
	if p, err = openPrivate(folder.Path()); err == nil {
		if p.lock, err = p.folder.Append(lockFile); err == nil {
			// where there are no locks, nobody takes the folder for a left-over
			_ = files.Hold(p.lock)
			err = p.folder.Write(ownerFile, []byte(run)) // behind the lock: who finds it finds that held
		}
	}
	return p, errors.Join(err, folder.Close())
}

// openPrivate opens a folder that has the place, the name, the owner and the mode of one of ours.
func openPrivate(dir string) (*Private, error) {
	base, name := filepath.Split(filepath.Clean(dir))
	if base = filepath.Clean(base); !slices.Contains(privateBases(), base) || !privateName().MatchString(name) {
		return nil, fmt.Errorf("%s is not where oomguard makes its private folders", dir)
	}
	p := &Private{Dir: dir}
	var err error
	if p.base, err = files.OpenFolder(base); err == nil {
		if p.folder, err = p.base.Folder(name); err == nil {
			err = p.folder.Private()
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// FindPrivate opens the private folder that a recorded run names, when it is that run's. The error is fs.ErrNotExist
// when it is gone.
func FindPrivate(store *Store, dir string) (*Private, error) {
	p, err := openPrivate(dir)
	if err != nil {
		return nil, err
	}
	run, err := p.run()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	own, err := store.folder()
	if err == nil {
		if err = own.Ours(); err == nil && !sameFolder(own, run) {
			err = fmt.Errorf("%s is the private folder of another run", dir)
		}
		err = errors.Join(err, own.Close())
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// run is the folder of the run that the private folder belongs to.
func (p *Private) run() (string, error) {
	name, err := p.folder.Read(ownerFile, 1<<14)
	if err != nil {
		return "", fmt.Errorf("%s does not say which run it belongs to: %w", p.Dir, err)
	}
	return string(name), nil
}

func sameFolder(folder *files.Folder, path string) bool {
	other, err := files.OpenFolder(path)
	if err != nil {
		return false
	}
	defer other.Close()
	return folder.Same(other)
}

// Close ends the use of the folder; the owner lets go of it.
func (p *Private) Close() error {
	var err error
	if p.lock != nil {
		err = p.lock.Close()
	}
	for _, f := range []*files.Folder{p.folder, p.base} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Owned tells whether the oomguard that made the folder lives. Where that cannot be told it does.
func (p *Private) Owned() bool { return p.held(lockFile) }

// Used tells whether its owner, a rank or the relay of the output still lives.
func (p *Private) Used() bool {
	if p.Owned() {
		return true
	}
	entries, err := p.folder.Entries()
	if err != nil {
		return true
	}
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != ownerFile && p.held(e.Name()) {
			return true
		}
	}
	return false
}

func (p *Private) held(name string) bool {
	f, err := p.folder.Open(name)
	if err != nil {
		return true
	}
	defer f.Close()
	return files.Hold(f) != nil
}

// Remove takes the folder away: the owner's own, or a left-over that nobody uses.
func (p *Private) Remove() error {
	name := filepath.Base(p.Dir)
	now, err := p.base.Folder(name)
	if errors.Is(err, os.ErrNotExist) {
		return p.Close()
	}
	if err == nil {
		if !now.Same(p.folder) {
			err = fmt.Errorf("%s is another folder by now", p.Dir)
		} else {
			err = p.base.RemoveAll(name)
		}
		err = errors.Join(err, now.Close())
	}
	return errors.Join(err, p.Close())
}

// Adopt copies what the ranks and the command wrote into the run folder, without secrets, after the owner was killed,
// so that a report made later has all of it. It gives the command's output.
func (p *Private) Adopt(store *Store, scrub *Scrubber, readTail func(path string) string) (output string, err error) {
	stages, err := store.writable(stagesDir)
	if err != nil {
		return "", fmt.Errorf("adopt the probe's records: %w", err)
	}
	defer stages.Close()
	for _, name := range probeFiles(p.folder) {
		// what was copied before is a prefix: the file is taken anew as a whole
		data, readErr := p.folder.Read(name, maxAdopted)
		if readErr == nil {
			readErr = stages.Write(name, scrub.JSON(data[:strings.LastIndexByte(string(data), '\n')+1]))
		}
		err = errors.Join(err, readErr)
	}
	if output = scrub.Text(readTail(filepath.Join(p.Dir, OutputFile))); output != "" {
		err = errors.Join(err, store.WriteFile(OutputFile, []byte(output)))
	}
	if err != nil {
		err = fmt.Errorf("adopt the probe's records: %w", err)
	}
	return output, err
}

// maxAdopted is the most that is taken of one rank's file.
const maxAdopted = 128 << 20

// maxSwept is how many left-overs one run looks at: a start must not take long.
const maxSwept = 8

// SweepPrivate takes away this user's left-over private folders, after what they hold was brought into their runs with
// adopt. Those of an oomguard, a rank or a relay that lives are left alone, and so is all that this package cannot have
// made.
func SweepPrivate(adopt func(*Private, *Store)) { sweepIn(privateBases(), adopt) }

func sweepIn(bases []string, adopt func(*Private, *Store)) {
	looked := 0
	for _, base := range bases {
		entries, err := files.List(base)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if looked == maxSwept {
				return
			}
			if e.IsDir() && privateName().MatchString(e.Name()) && sweep(filepath.Join(base, e.Name()), adopt) {
				looked++
			}
		}
	}
}

// sweep tells whether the folder was a left-over.
func sweep(dir string, adopt func(*Private, *Store)) bool {
	p, err := openPrivate(dir)
	if err != nil {
		return false
	}
	run, err := p.run()
	if err != nil || p.Used() {
		_ = p.Close() // nothing was written
		return false
	}
	if store := (&Store{Dir: run}); store.recorded() {
		if mine, err := FindPrivate(store, dir); err == nil {
			adopt(mine, store)
			_ = mine.Close()
		}
	}
	_ = p.Remove() // what stays is looked at again by the next run
	return true
}
