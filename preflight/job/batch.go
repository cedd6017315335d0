package job

import (
	"fmt"
	"math"
	"oomguard/preflight/job/document"
)

// A batchNumber is one of DeepSpeed's three batch numbers.
type batchNumber struct {
	key    string
	value  int            // 0: unknown
	given  *document.Node // where the file gives a number; nil: absent or "auto"
	auto   bool
	origin string // of a value that the file decides; "" when Trainer does
}

// readBatchOfDeepSpeed reads the batch numbers of a DeepSpeed configuration: train_batch_size = micro-batch x
// accumulation x ranks, any two give the third (deepspeed/runtime/config.py, _set_batch_related_parameters).
func (r *reader) readBatchOfDeepSpeed() {
	if r.deepspeed == nil {
		return
	}
	micro, okMicro := r.readBatchNumber("train_micro_batch_size_per_gpu")
	accum, okAccum := r.readBatchNumber("gradient_accumulation_steps")
	train, okTrain := r.readBatchNumber("train_batch_size")
	if !okMicro || !okAccum || !okTrain {
		return
	}
	world := r.ranks()
	shrinks := r.on("auto_find_batch_size") // Trainer then changes the micro-batch itself and compares nothing
	switch {
	case r.deepspeed.lenient:
		r.fillBatch(micro, "per_device_train_batch_size")
		r.fillBatch(accum, "gradient_accumulation_steps")
	case r.deepspeed.filled:
		r.matchTrainer(micro, "per_device_train_batch_size", trainerMicroBatch, shrinks)
		r.matchTrainer(accum, "gradient_accumulation_steps", trainerGradAccum, false)
	case r.family.foreign: // what the file leaves out, the program fills
	case !micro.auto && !accum.auto && !train.auto:
		r.completeBatch(micro, accum, train, world)
	}
	if global := product(micro.value, accum.value, world); train.given != nil && global > 0 && global != train.value &&
		!shrinks {
		remedy := fmt.Sprintf("set train_batch_size to %d", global)
		if r.deepspeed.filled {
			remedy += ` or to "auto"`
		}
		r.contradiction(train.given, "train_batch_size is %d, but micro-batch %d x accumulation %d x %d ranks is "+
			"%d, and DeepSpeed refuses to start; %s, or change one of the other three",
			train.value, micro.value, accum.value, world, global, remedy)
	}
	if micro.origin != "" {
		r.job.MicroBatch.Offer(micro.value, micro.origin)
	}
	if accum.origin != "" {
		r.job.GradAccum.Offer(accum.value, accum.origin)
	}
}

// readBatchNumber reads one number of the file; ok is false when what stands there is not one, which is then recorded.
func (r *reader) readBatchNumber(key string) (b *batchNumber, ok bool) {
	b = &batchNumber{key: key}
	n := r.deepspeed.doc.Get(key)
	if n == nil || n.Auto() || n.Value == nil {
		b.auto = n.Auto()
		return b, true
	}
	value, err := n.Integer()
	if err == nil && (value < 1 || value > math.MaxInt32) {
		err = n.Wrong("a whole number from 1")
	}
	if err != nil {
		r.unread(err)
		return b, false
	}
	b.value, b.given, b.origin = int(value), n, n.Origin()
	return b, true
}

// matchTrainer compares a number with Trainer's argument, or with its default: Trainer refuses a file that says
// something else, and its own number counts where the file says "auto" or nothing.
func (r *reader) matchTrainer(b *batchNumber, argument string, fallback int, shrinks bool) {
	trainer, said := fallback, "whose default is"
	if n := r.number(argument); n > 0 { // the framework's own default, where it has one
		trainer = n
	}
	if a, given := r.args[argument]; given {
		n, err := pythonInt(a.text)
		if err != nil { // recorded where the argument itself is read
			return
		}
		trainer, said = n, "which is"
	}
	if b.given == nil {
		b.value = trainer
		return
	}
	if b.value != trainer && !shrinks {
		r.contradiction(b.given, "%s is %d, but it must equal Trainer's --%s, %s %d, or the job does not start; "+
			"write \"auto\" here, or pass --%s %d",
			b.key, b.value, argument, said, trainer, argument, b.value)
	}
}

// fillBatch takes a number that the file leaves open from the script's argument of the usual name.
func (r *reader) fillBatch(b *batchNumber, argument string) {
	if n, err := pythonInt(r.args[argument].text); err == nil && b.given == nil {
		b.value = n
	}
}

// completeBatch derives what a native configuration leaves out.
func (r *reader) completeBatch(micro, accum, train *batchNumber, world int) {
	follows := "follows from the other batch numbers in " + r.deepspeed.file
	if micro.given == nil && train.given == nil {
		r.contradiction(r.deepspeed.doc,
			"has neither train_batch_size nor train_micro_batch_size_per_gpu, and DeepSpeed refuses to start; give "+
				"two of the three batch numbers")
		return
	}
	if accum.given == nil && (micro.given == nil || train.given == nil) {
		accum.value, accum.origin = 1, "default of DeepSpeed"
	}
	if train.given == nil || world == 0 {
		return
	}
	derive := func(b, other *batchNumber) {
		by := product(other.value, world)
		if by == 0 || train.value%by != 0 {
			r.contradiction(train.given, "train_batch_size is %d, which is not a multiple of %s %d x %d ranks = %d, "+
				"and DeepSpeed refuses to start; change one of them",
				train.value, other.key, other.value, world, by)
			return
		}
		b.value, b.origin = train.value/by, follows
	}
	switch {
	case micro.given == nil:
		derive(micro, accum)
	case accum.given == nil:
		derive(accum, micro)
	}
}
