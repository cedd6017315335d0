package gpu

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// instancesJSON has one cloud instance type a line: its GPU (an id of catalogue.json, or unknown_gpu for one that is
// not in it), how many, host memory in GiB, one_of when it is a slice of a GPU. From the clouds' documentation; status
// says where it is not.
//
//go:embed instances.json
var instancesJSON []byte

// instance is a line of instances.json.
type instance struct {
	Name       string `json:"name"`
	GPU        string `json:"gpu"`
	UnknownGPU string `json:"unknown_gpu"`
	Count      int    `json:"count"`
	RAMGiB     int64  `json:"ram_gib"`
	OneOf      int64  `json:"one_of"`
	Status     string `json:"status"`
}

func readInstances() ([]instance, error) {
	var list []instance
	if err := json.Unmarshal(instancesJSON, &list); err != nil {
		return nil, fmt.Errorf("read the embedded list of instances: %w", err)
	}
	return list, nil
}

// maxCount bounds a count in Lookup: the GPUs of one node, of which 16 are the most seen (a2-megagpu-16g); 72 share an
// NVLink domain.
const maxCount = 128

var (
	countFirst = regexp.MustCompile(`(?i)^(\d+)\s*[x*×]\s*(.+)$`) // 8xH100
	countLast  = regexp.MustCompile(`^(.+?)\s*:\s*(\d+)$`)        // H100:8, as some schedulers write it
)

// Lookup understands what a user writes for hardware that is not here: a GPU of the catalogue (H100, a100-80gb, "RTX
// 4090", the name that nvidia-smi prints), with a count before it (8xH100-80GB) or after it (H100:8), or the name of a
// cloud instance (p4d.24xlarge). It gives the GPU and how many one node has, 0 where the text does not say. Letter
// case, spaces, dashes and underscores do not matter. A name that fits several sizes gives the smaller, and the Note
// says so; an unknown name is an error with the nearest known ones.
func Lookup(text string) (Spec, int, error) {
	rows, err := readCatalogue()
	if err != nil {
		return Spec{}, 0, err
	}
	name, count, err := splitCount(text)
	if err != nil {
		return Spec{}, 0, err
	}
	if spec, ok := find(rows, key(name)); ok {
		return spec, count, nil
	}
	instances, err := readInstances()
	if err != nil {
		return Spec{}, 0, err
	}
	at := slices.IndexFunc(instances, func(i instance) bool { return key(i.Name) == key(name) })
	switch {
	case at < 0:
		return Spec{}, 0, fmt.Errorf("unknown GPU or cloud instance %q%s; oomguard gpus --catalogue lists all, and "+
			"--gpu-memory 48GiB stands for any card",
			name, nearest(name, rows, instances))
	case name != strings.TrimSpace(text):
		return Spec{}, 0, fmt.Errorf("%q: %s is a whole machine: write its name alone, and the number of machines "+
			"with --nnodes", text, instances[at].Name)
	}
	return instances[at].spec(rows)
}

func splitCount(text string) (name string, count int, err error) {
	name = strings.TrimSpace(text)
	digits := ""
	if m := countFirst.FindStringSubmatch(name); m != nil {
		digits, name = m[1], m[2]
	} else if m := countLast.FindStringSubmatch(name); m != nil {
		name, digits = m[1], m[2]
	}
	if digits != "" {
		if count, err = strconv.Atoi(digits); err != nil || count < 1 || count > maxCount {
			return "", 0, fmt.Errorf("%q: a machine has 1 to %d GPUs, not %s", text, maxCount, digits)
		}
	}
	if key(name) == "" {
		return "", 0, fmt.Errorf("%q does not name a GPU: write it like 8xH100-80GB or p4d.24xlarge", text)
	}
	return name, count, nil
}

// key is what is left of a name when the differences that do not matter are taken out.
func key(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '_' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	name = strings.ReplaceAll(name, "gib", "gb")
	for _, brand := range []string{"nvidia", "geforce", "tesla"} {
		if rest := strings.TrimPrefix(name, brand); rest != "" {
			name = rest
		}
	}
	return name
}

// find looks for the key as it is, and then with the card's own size after the known names (4090-24GB).
func find(rows []row, wanted string) (Spec, bool) {
	for _, r := range rows {
		if slices.ContainsFunc(r.names(), func(name string) bool { return key(name) == wanted }) {
			return r.chosenFor(wanted), true
		}
	}
	for _, r := range rows {
		size := strconv.FormatInt(r.NominalGB, 10) + "gb"
		if slices.ContainsFunc(r.names(), func(name string) bool { return key(name)+size == wanted }) {
			return r.spec(), true
		}
	}
	return Spec{}, false
}

// chosenFor is the spec with the note that wanted fits other cards too, if it does.
func (r row) chosenFor(wanted string) Spec {
	spec := r.spec()
	for name, note := range r.Ambiguous {
		if key(name) == wanted {
			spec.Note = join(note, spec.Note)
			break
		}
	}
	return spec
}

func (i instance) spec(rows []row) (Spec, int, error) {
	at := slices.IndexFunc(rows, func(r row) bool { return r.ID == i.GPU })
	if at < 0 {
		return Spec{}, 0, fmt.Errorf("%s has %d x %s, which is not in the catalogue: give its memory with --gpu-memory",
			i.Name, i.Count, i.UnknownGPU)
	}
	spec := rows[at].spec()
	if i.OneOf > 1 {
		spec.TotalBytes /= i.OneOf
		spec.NVMLTotalBytes /= i.OneOf
		spec.Note = join(spec.Note, fmt.Sprintf("%s has 1/%d of the GPU: its memory is taken as that share", i.Name,
			i.OneOf))
	}
	if i.Status != "" {
		spec.Note = join(spec.Note, "which GPUs "+i.Name+" has was not read in its cloud's documentation")
	}
	return spec, i.Count, nil
}

// nearest suggests up to three known names that differ from name in a few letters.
func nearest(name string, rows []row, instances []instance) string {
	type candidate struct {
		name     string
		distance int
	}
	var candidates []candidate
	wanted := key(name)
	consider := func(names ...string) {
		best := candidate{distance: 1 + (len(wanted)+2)/3} // further off it is no misspelling
		for _, n := range names {
			if d := distance(wanted, key(n)); d < best.distance {
				best = candidate{n, d}
			}
		}
		if best.name != "" {
			candidates = append(candidates, best)
		}
	}
	for _, r := range rows {
		consider(r.names()...)
	}
	for _, i := range instances {
		consider(i.Name)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return a.distance - b.distance })
	var found []string
	for _, c := range candidates[:min(3, len(candidates))] {
		found = append(found, c.name)
	}
	if len(found) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(found, ", ") + "?"
}

// maxNameBytes bounds the work of distance; the longest known name has 51.
const maxNameBytes = 80

// distance is Levenshtein's: how many bytes to insert, delete or replace.
func distance(a, b string) int {
	if len(a) > maxNameBytes {
		return len(a)
	}
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range len(a) {
		current := make([]int, len(b)+1)
		current[0] = i + 1
		for j := range len(b) {
			replace := previous[j]
			if a[i] != b[j] {
				replace++
			}
			current[j+1] = min(replace, previous[j+1]+1, current[j]+1)
		}
		previous = current
	}
	return previous[len(b)]
}
