package gpu

import (
	"slices"
	"strings"
	"testing"
)

// Expected lists follow torch/cuda/__init__.py of PyTorch 2.x, _parse_visible_devices, _transform_uuid_to_ordinals and _device_count_nvml, and
// the example "2,1,-1,0" of the CUDA C++ Programming Guide. MIG: NVIDIA MIG User Guide, "CUDA Device Enumeration".
func TestVisible(t *testing.T) {
	cards := []Device{{Index: 0, UUID: "GPU-aaaa-1"}, {Index: 1, UUID: "GPU-aabb-2"}, {Index: 2, UUID: "GPU-cccc-3"}, {Index: 3, UUID: "GPU-dddd-4"}}
	mixed := []Device{{Index: 0, UUID: "MIG-1", MIG: true}, {Index: 0, UUID: "MIG-2", MIG: true}, {Index: 1, UUID: "GPU-bbbb"}, {Index: 2, UUID: "MIG-3", MIG: true}}
	for _, tt := range []struct {
		name    string
		devices []Device
		cvd     string
		want    string // UUIDs
		problem string // part of the only problem's text
	}{
		{"indices", cards, "2,0", "GPU-cccc-3 GPU-aaaa-1", ""},
		{"spaces", cards, " 1 , 3 ", "GPU-aabb-2 GPU-dddd-4", ""},
		{"plus sign and zeros", cards, "+1,02", "GPU-aabb-2 GPU-cccc-3", ""},
		{"empty", cards, "", "", "set and empty"},
		{"blank", cards, "  ", "", "set and empty"},
		{"minus one", cards, "-1", "", `"-1" ends the list: no GPU is visible`},
		{"up to minus one", cards, "2,1,-1,0", "GPU-cccc-3 GPU-aabb-2", "so is all after it (0)"},
		{"out of range", cards, "0,4,1", "GPU-aaaa-1", "there is no GPU 4, only 4"},
		{"out of range, last", cards, "0,4", "GPU-aaaa-1", "it is ignored"},
		{"huge", cards, "99999999999999999999", "", "there is no GPU 99999999999999999999"},
		{"twice", cards, "0,1,0", "", "names a GPU twice"},
		{"words", cards, "all", "", `"all" is neither an index nor a UUID`},
		{"number and word", cards, "1gpu", "GPU-aabb-2", `"1gpu" is read as 1`},
		{"trailing comma", cards, "0,", "GPU-aaaa-1", "an entry is empty"},
		{"leading comma", cards, ",0", "", "an entry is empty: no GPU is visible"},
		{"full UUIDs", cards, "GPU-dddd-4,GPU-aaaa-1", "GPU-dddd-4 GPU-aaaa-1", ""},
		{"UUID prefix", cards, "GPU-c", "GPU-cccc-3", ""},
		{"ambiguous prefix", cards, "GPU-cccc,GPU-aa,GPU-d", "GPU-cccc-3", "fits more than one device"},
		{"unknown UUID", cards, "GPU-eeee", "", "no device has a UUID"},
		{"upper case", cards, "GPU-AAAA", "", "no device has a UUID"},
		{"one GPU by two prefixes", cards, "GPU-cccc,GPU-cc", "", "names a GPU twice"},
		{"UUID then index", cards, "GPU-c,1", "GPU-cccc-3", "of another kind"},
		{"index then UUID", cards, "1,GPU-c", "GPU-aabb-2", "of another kind"},
		{"no devices", nil, "0", "", "there is no GPU 0, only 0"},
		{"MIG", mixed, "MIG-2", "MIG-2", ""},
		{"two MIG", mixed, "MIG-2,MIG-3", "MIG-2", "only one, the MIG device MIG-2"},
		{"index of a GPU with MIG", mixed, "2", "MIG-3", ""},
		{"index of a full GPU", mixed, "1", "GPU-bbbb", ""},
		{"MIG beside a full GPU", mixed, "1,0", "MIG-1", "only one, the MIG device MIG-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := Visible(tt.devices, tt.cvd, true)
			if uuids(got) != tt.want {
				t.Errorf("visible %q, want %q", uuids(got), tt.want)
			}
			switch {
			case tt.problem == "" && len(problems) > 0, tt.problem != "" && len(problems) != 1:
				t.Fatalf("problems %q, want %q", problems, tt.problem)
			case len(problems) == 1 && (!strings.Contains(problems[0].Text, tt.problem) || problems[0].Remedy == ""):
				t.Errorf("problem %q lacks %q, or a remedy", problems, tt.problem)
			}
		})
	}
	if got, problems := Visible(cards, "ignored", false); uuids(got) != uuids(cards) || problems != nil {
		t.Errorf("not set: %q, %q", uuids(got), problems)
	}
	if got, problems := Visible(mixed, "", false); uuids(got) != "MIG-1" || len(problems) != 1 {
		t.Errorf("not set, with MIG: %q, %q", uuids(got), problems)
	}
}

func uuids(devices []Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.UUID)
	}
	return strings.Join(all, " ")
}

func FuzzVisible(f *testing.F) {
	for _, seed := range []string{"0,1", "GPU-a", "MIG-", "-1", ",", "+", "1x,GPU-", "\xff", "00000000000000000000000000001"} {
		f.Add(seed)
	}
	devices := []Device{{UUID: "GPU-a"}, {Index: 1, UUID: "MIG-a", MIG: true}, {Index: 1, UUID: "MIG-b", MIG: true}, {Index: 2}}
	f.Fuzz(func(t *testing.T, cvd string) {
		got, problems := Visible(devices, cvd, true)
		for _, d := range got {
			if !slices.ContainsFunc(devices, func(known Device) bool { return known.UUID == d.UUID && known.Index == d.Index }) {
				t.Errorf("%q shows a device that is not there: %+v", cvd, d)
			}
		}
		if len(got) == 0 && len(problems) == 0 {
			t.Errorf("%q hides all devices without a word", cvd)
		}
	})
}
