package estimate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Schema identifies the JSON form of an Estimate.
const Schema = "oomguard.estimate/v1"

var componentNames = [NumComponents]string{
	Parameters:    "parameters",
	MasterWeights: "master_weights",
	Gradients:     "gradients",
	Optimizer:     "optimizer",
	Activations:   "activations",
	Logits:        "logits",
	Temporaries:   "temporaries",
	Communication: "communication",
	Context:       "context",
	Fragmentation: "fragmentation",
}

// ComponentNames lists the JSON names of all components in table order.
func ComponentNames() []string { return append([]string(nil), componentNames[:]...) }

// String is the component's JSON name; a number outside the vocabulary prints as component(N).
func (c Component) String() string {
	if c < 0 || c >= NumComponents {
		return fmt.Sprintf("component(%d)", int(c))
	}
	return componentNames[c]
}

// Sum is the memory of all components in bytes: what nvidia-smi would show for the process.
func (c Components) Sum() int64 { return c.Allocated() + c[Context] + c[Fragmentation] }

// Allocated is the part that PyTorch's allocator hands out: all components without context and fragmentation, in bytes.
func (c Components) Allocated() int64 {
	var sum int64
	for i := range Context {
		sum += c[i]
	}
	return sum
}

// ModelStates is parameters, master weights, gradients and optimizer state together, in bytes.
func (c Components) ModelStates() int64 {
	return c[Parameters] + c[MasterWeights] + c[Gradients] + c[Optimizer]
}

// Bottleneck is the largest component; of equal ones, the first in table order.
func (c Components) Bottleneck() Component {
	largest := Parameters
	for i := range NumComponents {
		if c[i] > c[largest] {
			largest = i
		}
	}
	return largest
}

// MarshalJSON writes an object keyed by the components' names, in table order, values in bytes.
func (c Components) MarshalJSON() ([]byte, error) {
	buf := []byte{'{'}
	for i, name := range componentNames {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = strconv.AppendQuote(buf, name)
		buf = append(buf, ':')
		buf = strconv.AppendInt(buf, c[i], 10)
	}
	return append(buf, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote. Absent components are zero; names that this version does not know are
// ignored, because documents only ever gain fields.
func (c *Components) UnmarshalJSON(data []byte) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil
	}
	var named map[string]json.RawMessage
	if err := json.Unmarshal(data, &named); err != nil {
		return fmt.Errorf("components: want an object of byte counts: %w", err)
	}
	*c = Components{}
	for i, name := range componentNames {
		raw, ok := named[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, &c[i]); err != nil {
			return fmt.Errorf("components: %s: want a whole number of bytes: %w", name, err)
		}
	}
	return nil
}
