package job

import (
	"fmt"
	"reflect"
	"strings"
)

// Named is one setting as text, for people.
type Named struct {
	Key   string // the contract's key: "micro_batch"
	Value string // "unknown" when it is not known, "none" when it is known to be empty
	Known bool
	// Origin is where the value came from, or why it is unknown.
	Origin string
}

// Settings lists every setting of the job in the order of the struct.
func (j *Job) Settings() []Named {
	var list []Named
	j.eachFact(func(key string, f fact) { list = append(list, f.named(key)) })
	return list
}

// eachFact visits the settings in the order of the struct, which is the order of explain.
func (j *Job) eachFact(visit func(key string, f fact)) {
	fields := reflect.ValueOf(j).Elem()
	for i := range fields.NumField() {
		if f, ok := reflect.TypeAssert[fact](fields.Field(i).Addr()); ok {
			visit(fields.Type().Field(i).Tag.Get("json"), f)
		}
	}
}

func valueText(value any) string {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && v.IsNil() {
		return "none"
	}
	text := fmt.Sprint(value)
	if text == "" {
		return "none"
	}
	return text
}

// String is the adapter in one line.
func (l *LoRA) String() string {
	targets := "PEFT's default"
	if len(l.Targets) > 0 {
		targets = strings.Join(l.Targets, ",")
	}
	text := fmt.Sprintf("r %d, alpha %d, dropout %g, targets %s", l.R, l.Alpha, l.Dropout, targets)
	if len(l.ModulesToSave) > 0 {
		text += ", full copies of " + strings.Join(l.ModulesToSave, ",")
	}
	if l.DoRA {
		text += ", DoRA"
	}
	if l.RSLoRA {
		text += ", rank-stabilised"
	}
	return text
}

// String is the quantisation in one line.
func (q *Quant) String() string {
	text := fmt.Sprintf("%s %d bits", q.Method, q.Bits)
	if q.Type != "" {
		text += ", " + q.Type
	}
	if q.Double {
		text += ", scales quantised too"
	}
	if q.ComputeDtype != "" {
		text += ", computes in " + q.ComputeDtype
	}
	return text
}

// String is "none" when nothing is offloaded.
func (o Offload) String() string {
	if o.Optimizer == "none" && o.Params == "none" {
		return "none"
	}
	return fmt.Sprintf("optimizer %s, params %s", o.Optimizer, o.Params)
}

// String names what decides memory; the JSON form has every number.
func (d *DeepSpeed) String() string {
	return fmt.Sprintf("stage %d, batch %s = %s x %s x ranks, reduce bucket %s, overlap_comm %t", d.Stage,
		sizeText(int64(d.TrainBatchSize)),
		sizeText(int64(d.TrainMicroBatchSizePerGPU)), sizeText(int64(d.GradientAccumulationSteps)),
		sizeText(d.ReduceBucketSize), d.OverlapComm)
}

func sizeText(elements int64) string {
	if elements == UnknownSize {
		return "unknown"
	}
	return fmt.Sprint(elements)
}
