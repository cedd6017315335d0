package preflight

import "fmt"

// Units is how byte counts are shown to people.
type Units string

// IEC, also the meaning of "", shows GiB as PyTorch and nvidia-smi do; SI shows GB = 10^9 bytes.
const (
	IEC Units = "iec"
	SI  Units = "si"
)

// format gives n with two decimals. Below a tenth of the large unit it takes the next smaller one, as PyTorch's own
// messages do: "0.06 GiB" would hide that a shared-memory mount has exactly 64 MiB.
func (u Units) format(n int64) string {
	large, small, largeName, smallName := float64(1<<30), float64(1<<20), "GiB", "MiB"
	if u == SI {
		large, small, largeName, smallName = 1e9, 1e6, "GB", "MB"
	}
	if x := float64(n); x > -large/10 && x < large/10 {
		return fmt.Sprintf("%.2f %s", x/small, smallName)
	}
	return fmt.Sprintf("%.2f %s", float64(n)/large, largeName)
}

func (f Facts) bytes(n int64) string { return f.Units.format(n) }

// mib is a threshold in MiB as bytes.
func mib(n float64) int64 { return int64(n * (1 << 20)) }
