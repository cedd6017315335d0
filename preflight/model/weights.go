package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"oomguard/launcher/files"
)

// Weights is what the headers of a model's safetensors files say. The data itself is never read.
type Weights struct {
	Source  string // the file, the index or the folder that was read
	Files   []WeightFile
	Tensors []StoredTensor // of all files that could be read, sorted by name
	// Problems say, each with its file and a remedy, what is damaged or missing. The counts below leave out what is not
	// there.
	Problems []string

	Elements        int64            // stored scalars, packed ones as they are stored
	Bytes           int64            // of data
	ElementsByDtype map[string]int64 // by safetensors' name: "BF16", "F32"
	BytesByDtype    map[string]int64
}

// WeightFile is one safetensors file.
type WeightFile struct {
	Path      string
	SizeBytes int64 // of the file; 0 when it is missing
	Tensors   int
	// Err says what is wrong with the file, or is nil. A file whose data is cut off after a whole header has its
	// tensors all the same.
	Err error
}

// The names under which transformers saves weights (utils/__init__.py).
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

var shardName = regexp.MustCompile(`^model-(\d{5})-of-(\d{5})\.safetensors$`)

// ReadWeights reads the headers of the weights in a model's directory: model.safetensors, or the shards that the index
// names, or shards without their index; or of one safetensors file. Damaged and missing files are reported in Problems.
// The error says that there is nothing to read: it is fs.ErrNotExist when the directory has no safetensors files.
func ReadWeights(path string) (*Weights, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("weights %q: %w", path, err)
	}
	w := &Weights{Source: path, ElementsByDtype: map[string]int64{}, BytesByDtype: map[string]int64{}}
	if !info.IsDir() {
		w.read(path)
		return w.done()
	}
	for _, place := range []struct {
		name string
		read func(string) error
	}{
		{singleFile, func(file string) error { w.read(file); return nil }}, // transformers prefers it to the index
		{indexFile, w.readIndexed},
	} {
		file := filepath.Join(path, place.name)
		if _, err := os.Lstat(file); err == nil { // a link into an emptied cache is there, and broken
			w.Source = file
			if err := place.read(file); err != nil {
				return nil, err
			}
			return w.done()
		}
	}
	if err := w.readUnindexed(path); err != nil {
		return nil, err
	}
	return w.done()
}

// done sums up.
func (w *Weights) done() (*Weights, error) {
	slices.SortFunc(w.Tensors, func(a, b StoredTensor) int { return cmp.Compare(a.Name, b.Name) })
	for i, t := range w.Tensors {
		if i > 0 && t.Name == w.Tensors[i-1].Name {
			w.Problems = append(w.Problems,
				fmt.Sprintf("%s: tensor %q is in two of its files: delete the wrong one", w.Source, t.Name))
		}
		w.Elements += t.Elements()
		w.Bytes += t.Bytes
		w.ElementsByDtype[t.Dtype] += t.Elements()
		w.BytesByDtype[t.Dtype] += t.Bytes
	}
	return w, nil
}

// read adds one file.
func (w *Weights) read(path string) {
	file := WeightFile{Path: path}
	tensors, size, err := headerOf(path)
	if err == nil && len(w.Tensors)+len(tensors) > maxStoredTensors {
		tensors, err = nil, fmt.Errorf("with it the model has more than %d tensors, which no model has",
			maxStoredTensors)
	}
	file.SizeBytes, file.Tensors, file.Err = size, len(tensors), err
	if err != nil {
		w.Problems = append(w.Problems, fmt.Sprintf("%s: %v", path, err))
	}
	w.Files = append(w.Files, file)
	w.Tensors = append(w.Tensors, tensors...)
}

func headerOf(path string) ([]StoredTensor, int64, error) {
	f, err := files.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fmt.Errorf("the file is missing: download or copy it (%w)", fs.ErrNotExist)
	case err != nil:
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	tensors, err := readHeader(f, info.Size())
	return tensors, info.Size(), err
}

// readIndexed reads the shards that an index names.
func (w *Weights) readIndexed(path string) error {
	shards, err := readIndex(path)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		if !filepath.IsLocal(name) {
			w.Problems = append(w.Problems,
				fmt.Sprintf("%s: shard %q lies outside the model's folder: correct the index", path, name))
			continue
		}
		before := len(w.Tensors)
		w.read(filepath.Join(filepath.Dir(path), filepath.FromSlash(name)))
		if file := w.Files[len(w.Files)-1]; file.Err != nil && file.Tensors == 0 {
			w.Problems[len(w.Problems)-1] += fmt.Sprintf(" (it holds %d of the model's tensors)", len(shards[name]))
			continue
		}
		there := map[string]bool{}
		for _, t := range w.Tensors[before:] {
			there[t.Name] = true
		}
		absent := slices.DeleteFunc(slices.Clone(shards[name]), func(tensor string) bool { return there[tensor] })
		if len(absent) > 0 {
			w.Problems = append(w.Problems,
				fmt.Sprintf("%s: %d tensors that the index places there are not in it (%s): download shards and "+
					"index again",
					filepath.Join(filepath.Dir(path), name), len(absent), few(absent)))
		}
	}
	return nil
}

// readIndex returns the names of tensors by shard.
func readIndex(path string) (map[string][]string, error) {
	data, err := files.Read(path, maxFileBytes)
	var large *files.TooLargeError
	switch {
	case errors.As(err, &large):
		return nil, fmt.Errorf("%s is larger than %d MiB, which no index is: download it again", path, maxFileBytes>>20)
	case err != nil:
		return nil, fmt.Errorf("index of the weights: %w", err)
	case strings.HasPrefix(string(data), "version https://git-lfs"):
		return nil, fmt.Errorf("%s is a Git LFS pointer, not the index: run git lfs pull in its folder", path)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s: %w: want an object with a weight_map from tensors to files; download it again",
			path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s names no file (its weight_map is empty or not there): download it again", path)
	}
	shards := map[string][]string{}
	for _, tensor := range slices.Sorted(maps.Keys(index.WeightMap)) {
		shards[index.WeightMap[tensor]] = append(shards[index.WeightMap[tensor]], tensor)
	}
	return shards, nil
}

// readUnindexed reads shards that have no index.
func (w *Weights) readUnindexed(dir string) error {
	entries, err := files.List(dir)
	if err != nil {
		return fmt.Errorf("weights %q: %w", dir, err)
	}
	total, seen := 0, map[int]bool{}
	for _, e := range entries {
		match := shardName.FindStringSubmatch(e.Name())
		if match == nil {
			continue
		}
		number, _ := strconv.Atoi(match[1]) // five digits
		of, _ := strconv.Atoi(match[2])
		total, seen[number] = max(total, of), true
		w.read(filepath.Join(dir, e.Name()))
	}
	if len(w.Files) == 0 {
		return fmt.Errorf("model directory %q holds neither %s nor %s: %w", dir, singleFile, indexFile, fs.ErrNotExist)
	}
	w.Problems = append(w.Problems,
		fmt.Sprintf("%s holds shards and no %s, so that transformers will not load them: download it", dir, indexFile))
	var missing []string
	for i := 1; i <= total; i++ {
		if !seen[i] {
			missing = append(missing, strconv.Itoa(i))
		}
	}
	if len(missing) > 0 {
		w.Problems = append(w.Problems,
			fmt.Sprintf("%s: of %d shards %d are missing (%s): download them", dir, total, len(missing), few(missing)))
	}
	return nil
}

// few lists the first names.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", ..."
}
