package files

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The modes of what we make: what a run prints and reads is its owner's business.
const (
	folderMode = 0o700
	fileMode   = 0o600
)

// A Folder is a folder of ours, held open: what is done in it is done there, whatever its name has come to mean. Names
// are those of its entries, without a slash, and none of them is followed where it is a link.
type Folder struct{ dir *os.File }

// OpenFolder opens a folder, which must not be a link.
func OpenFolder(path string) (*Folder, error) {
	return folderAt(unix.AT_FDCWD, path, path)
}

func folderAt(dir int, name, path string) (*Folder, error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	// Linux says the latter of a link to a folder
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR) && isLink(path):
		return nil, &fs.PathError{Op: "open", Path: path,
			Err: errors.New("is a symbolic link, which is not followed here")}
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Folder{os.NewFile(uintptr(fd), path)}, nil
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	for {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// NewFolder makes a folder that is not there yet; only its owner can enter it.
func NewFolder(path string) (*Folder, error) {
	if err := os.Mkdir(path, folderMode); err != nil {
		return nil, err
	}
	return OpenFolder(path)
}

// Ensure makes a folder, and those above it, where it is missing. It may be a link: a person has named it.
func Ensure(path string) error { return os.MkdirAll(path, folderMode) }

// EnsureFolder opens a folder and makes it, and those above it, where it is missing.
func EnsureFolder(path string) (*Folder, error) {
	if err := Ensure(path); err != nil {
		return nil, err
	}
	return OpenFolder(path)
}

// TempFolder makes a folder with a name of its own, prefix and digits, in base.
func TempFolder(base, prefix string) (*Folder, error) {
	path, err := os.MkdirTemp(base, prefix)
	if err != nil {
		return nil, err
	}
	return OpenFolder(path)
}

func (f *Folder) fd() int { return int(f.dir.Fd()) }

// Path is the name under which the folder was opened.
func (f *Folder) Path() string { return f.dir.Name() }

// Close ends the use of the folder.
func (f *Folder) Close() error { return f.dir.Close() }

func (f *Folder) path(name string) string { return filepath.Join(f.Path(), name) }

// at calls do with an entry's name, unless that leads elsewhere.
func (f *Folder) at(op, name string, do func() error) error {
	err := error(unix.EINVAL)
	if name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") {
		err = do()
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.path(name), Err: err}
	}
	return nil
}

func (f *Folder) openFile(name string, flags int) (*os.File, error) {
	var fd int
	err := f.at("open", name, func() (err error) {
		fd, err = openat(f.fd(), name, flags, fileMode)
		return err
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &NotRegularError{f.path(name), "a symbolic link"}
	case errors.Is(err, unix.ENXIO):
		return nil, &NotRegularError{f.path(name), "a named pipe, a socket or a device"}
	case err != nil:
		return nil, err
	}
	return regular(os.NewFile(uintptr(fd), f.path(name)), f.path(name))
}

// Open opens a regular file for reading.
func (f *Folder) Open(name string) (*os.File, error) { return f.openFile(name, unix.O_RDONLY) }

// OpenOwn opens a file in a folder of ours by its path, neither of which may be a link.
func OpenOwn(path string) (*os.File, error) {
	f, err := OpenFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Open(filepath.Base(path))
}

// Read reads a whole file. One of more than limit bytes is a *TooLargeError.
func (f *Folder) Read(name string, limit int64) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readAll(file, f.path(name), limit)
}

// Has tells whether there is an entry of that name, whatever it is.
func (f *Folder) Has(name string) bool {
	_, err := f.stat(name)
	return err == nil
}

func (f *Folder) stat(name string) (stat unix.Stat_t, err error) {
	err = f.at("stat", name, func() error { return unix.Fstatat(f.fd(), name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	return stat, err
}

// Write puts a file in place as a whole, so that a reader never sees half of it.
func (f *Folder) Write(name string, data []byte) error {
	file, temporary, err := f.temporary(name)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, f.Remove(temporary))
	}
	return nil
}

func (f *Folder) temporary(name string) (*os.File, string, error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, "", err
	}
	temporary := name + "." + hex.EncodeToString(id[:]) + ".tmp"
	file, err := f.openFile(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	return file, temporary, err
}

// Append opens a file for writing at its end and makes it where it is missing. A file with another name elsewhere is
// refused.
func (f *Folder) Append(name string) (*os.File, error) {
	file, err := f.openFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil || stat.Nlink > 1 {
		return nil, errors.Join(fmt.Errorf("%s has another name elsewhere, and is not written to", f.path(name)), err,
			file.Close())
	}
	return file, nil
}

// Rename gives an entry another name in the folder, in place of what had it.
func (f *Folder) Rename(from, to string) error {
	return f.at("rename", from, func() error {
		return f.at("rename", to, func() error { return unix.Renameat(f.fd(), from, f.fd(), to) })
	})
}

// Folder opens a folder in the folder.
func (f *Folder) Folder(name string) (sub *Folder, err error) {
	err = f.at("open", name, func() error {
		sub, err = folderAt(f.fd(), name, f.path(name))
		return err
	})
	return sub, err
}

// Make opens a folder in the folder and makes it where it is missing.
func (f *Folder) Make(name string) (*Folder, error) {
	err := f.at("mkdir", name, func() error { return unix.Mkdirat(f.fd(), name, folderMode) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.Folder(name)
}

// Entries are the folder's entries in the order of their names.
func (f *Folder) Entries() ([]fs.DirEntry, error) {
	again, err := folderAt(f.fd(), ".", f.Path()) // reading moves on in the open folder
	if err != nil {
		return nil, err
	}
	defer again.Close()
	entries, err := again.dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// Remove takes an entry away that is no folder.
func (f *Folder) Remove(name string) error {
	return f.at("remove", name, func() error { return unix.Unlinkat(f.fd(), name, 0) })
}

// RemoveAll takes an entry away with all that is in it. Links are taken away, not followed.
func (f *Folder) RemoveAll(name string) error {
	err := f.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	sub, err := f.Folder(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	entries, err := sub.Entries()
	for _, e := range entries {
		err = errors.Join(err, sub.RemoveAll(e.Name()))
	}
	if err != nil {
		return err
	}
	return f.at("remove", name, func() error { return unix.Unlinkat(f.fd(), name, unix.AT_REMOVEDIR) })
}

// Same tells whether both are one folder.
func (f *Folder) Same(other *Folder) bool {
	a, errA := f.dir.Stat()
	b, errB := other.dir.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// Private is an error unless the folder is ours and nobody else can enter it.
func (f *Folder) Private() error {
	var stat unix.Stat_t
	if err := unix.Fstat(f.fd(), &stat); err != nil {
		return err
	}
	if int(stat.Uid) != os.Geteuid() || stat.Mode&0o077 != 0 {
		return fmt.Errorf("%s belongs to another user or is open to others (owner %d, mode %04o)", f.Path(), stat.Uid,
			stat.Mode&0o7777)
	}
	return nil
}

// Ours is an error where the folder is another user's. A file system that gives all files one owner (a squashed network
// share) makes ours look alike, and that counts too.
func (f *Folder) Ours() error {
	var dir, made unix.Stat_t
	if err := unix.Fstat(f.fd(), &dir); err != nil || int(dir.Uid) == os.Geteuid() {
		return err
	}
	file, name, err := f.temporary("owner")
	if err != nil {
		return fmt.Errorf("%s belongs to another user (%d): %w", f.Path(), dir.Uid, err)
	}
	err = unix.Fstat(int(file.Fd()), &made)
	if err = errors.Join(err, file.Close(), f.Remove(name)); err == nil && made.Uid != dir.Uid {
		err = fmt.Errorf("%s belongs to another user (%d): nothing is written there", f.Path(), dir.Uid)
	}
	return err
}

// Clock is the time now by the clock of the folder's file system.
func (f *Folder) Clock() (time.Time, error) {
	file, name, err := f.temporary("clock")
	if err != nil {
		return time.Time{}, err
	}
	info, err := file.Stat()
	if err := errors.Join(err, file.Close(), f.Remove(name)); err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// List is the entries of any folder, in the order of their names.
func List(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
