package gpu

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const mib = 1 << 20

// Spec is a GPU of the catalogue: what a machine that has none must be told to plan for one.
type Spec struct {
	ID   string `json:"id"` // for ever; lower case with dashes
	Name string `json:"name"`
	// TotalBytes is what CUDA can give out (cudaMemGetInfo's total): NVML's total less the driver's reserve. The
	// reserve grew with the drivers, so this is the smallest total seen under Linux.
	TotalBytes int64 `json:"total_bytes"`
	// NVMLTotalBytes is what nvidia-smi prints as the total; 0 where it prints none (unified memory).
	NVMLTotalBytes int64 `json:"nvml_total_bytes"`
	// ContextBytes is what one PyTorch process without NCCL holds outside PyTorch's allocator: CUDA context, kernels,
	// handles.
	ContextBytes      int64  `json:"context_bytes"`
	ComputeCapability string `json:"compute_capability"`
	Unified           bool   `json:"unified"` // memory is shared with the host
	Note              string `json:"note"`    // what was assumed, and what to beware of
}

// catalogueJSON has one GPU a line. Its figures:
//
//   - nvml_total_mib, other_totals_mib: memory.total of nvidia-smi with a current driver, and the others printed under
//     the same name (drivers before R510 take the reserve off, ECC takes 1/16 of GDDR memory, modified boards, vGPU).
//     Read in public logs.
//   - plan_total_mib: smallest total_memory of PyTorch or "total capacity" of its out-of-memory text under Linux, or
//     NVML's total less the reserve of nvidia-smi -q; plan_status is derived where the reserve is that of a similar
//     card.
//   - context_mib: from out-of-memory texts, process use less allocated less reserved but unallocated, the largest seen
//     (context_basis measured); or the usual size for chips of that kind (class): 0.35 GiB for small chips, 0.6 for
//     large ones up to Ada, 0.75 from Hopper on. It follows the number of SMs, not the memory.
//
//go:embed catalogue.json
var catalogueJSON []byte

// row is a line of catalogue.json.
type row struct {
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Aliases           []string          `json:"aliases"`
	SMINames          []string          `json:"smi_names"` // as NVML prints them
	NominalGB         int64             `json:"nominal_gb"`
	NVMLTotalMiB      int64             `json:"nvml_total_mib"`
	OtherTotalsMiB    []int64           `json:"other_totals_mib"`
	PlanTotalMiB      int64             `json:"plan_total_mib"`
	PlanStatus        string            `json:"plan_status"`
	ComputeCapability string            `json:"compute_capability"`
	ContextMiB        int64             `json:"context_mib"`
	ContextBasis      string            `json:"context_basis"`
	Unified           bool              `json:"unified"`
	Ambiguous         map[string]string `json:"ambiguous"` // name that fits other cards too -> what was chosen
	Note              string            `json:"note"`
}

// readCatalogue reads the embedded table. It is small (0.5 ms) and asked for a few times a run, so it is not kept.
func readCatalogue() ([]row, error) {
	var rows []row
	if err := json.Unmarshal(catalogueJSON, &rows); err != nil {
		return nil, fmt.Errorf("read the embedded GPU catalogue: %w", err)
	}
	return rows, nil
}

// Catalogue lists the known GPUs. (The embedded table is proved readable by a test; were it not, the list would be
// empty.)
func Catalogue() []Spec {
	rows, _ := readCatalogue()
	specs := make([]Spec, len(rows))
	for i, r := range rows {
		specs[i] = r.spec()
	}
	return specs
}

func (r row) spec() Spec {
	notes := []string{r.Note}
	if r.PlanStatus != "verified" {
		notes = append(notes, "CUDA's total is taken from a similar card")
	}
	if r.ContextBasis != "measured" {
		notes = append(notes, "the context size is taken from similar cards")
	}
	return Spec{
		ID: r.ID, Name: r.Name, TotalBytes: r.PlanTotalMiB * mib, NVMLTotalBytes: r.NVMLTotalMiB * mib,
		ContextBytes:      r.ContextMiB * mib,
		ComputeCapability: r.ComputeCapability, Unified: r.Unified, Note: join(notes...),
	}
}

// names are all spellings under which the GPU can be asked for.
func (r row) names() []string {
	return slices.Concat([]string{r.ID, r.Name}, r.Aliases, r.SMINames)
}

// join puts the notes that are not empty into one sentence.
func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), "; ")
}

const (
	// totalTolerance is how far NVML's total may lie from a known one: it moved by less than this between drivers since
	// R510, and sizes sold under one name differ by more.
	totalTolerance = 0.01
	// reserveShare bounds the driver's reserve as a share of the memory (2.3 % on an RTX 2080 Ti is the largest seen).
	// A total that is smaller by less comes from a driver before R510, which takes the reserve off before it reports.
	reserveShare = 0.03
)

// Match finds the GPU that NVML shows under name with totalBytes (0 on unified memory). The name alone is not enough:
// an RTX 3080 has 10 or 12 GB. Where the total is another than the usual one (ECC on, an old driver), TotalBytes is
// that of this device.
func Match(name string, totalBytes int64) (Spec, bool) {
	rows, err := readCatalogue()
	if err != nil {
		return Spec{}, false
	}
	for _, r := range rows {
		if !slices.ContainsFunc(r.SMINames, func(known string) bool { return key(known) == key(name) }) {
			continue
		}
		if spec := r.spec(); near(totalBytes, spec.NVMLTotalBytes) {
			return spec, true
		}
		for _, other := range r.OtherTotalsMiB {
			if near(totalBytes, other*mib) {
				return r.withTotal(totalBytes), true
			}
		}
	}
	return Spec{}, false
}

func near(got, known int64) bool {
	return float64(max(got, known)-min(got, known)) <= totalTolerance*float64(known)
}

// withTotal is the spec of a device whose NVML total differs from the usual one.
func (r row) withTotal(totalBytes int64) Spec {
	spec := r.spec()
	missing := spec.NVMLTotalBytes - totalBytes
	if missing >= 0 && float64(missing) < reserveShare*float64(spec.NVMLTotalBytes) {
		spec.TotalBytes = min(spec.TotalBytes, totalBytes)
	} else {
		spec.TotalBytes -= missing
	}
	spec.NVMLTotalBytes = totalBytes
	spec.Note = join(spec.Note, fmt.Sprintf("this one has %d MiB instead of the usual %d (ECC, an old driver, or "+
		"another board)", totalBytes/mib, r.NVMLTotalMiB))
	return spec
}
