// Package allocconf reads the settings of PyTorch's CUDA allocator (PYTORCH_CUDA_ALLOC_CONF and its newer and ROCm
// names) as the installed torch will read them, and says what is wrong before a GPU is touched. It is pure: text,
// version and a lookup function in, findings out.
//
// Sources: c10/cuda/CUDAAllocatorConfig.{h,cpp} and c10/core/AllocatorConfig.{h,cpp} of PyTorch, several versions.
package allocconf

// kind is the form of an option's value.
type kind int

const (
	boolean  kind = iota // exactly True or False
	integer              // a whole number
	fraction             // a decimal number
	backend              // native or cudaMallocAsync
	roundup              // a number, or a list of interval:divisions
	opaque               // read by PyTorch itself, a bad value only warns
)

// option is one key of the setting: a row of the table below is the only place to add one.
type option struct {
	key   string
	since Version // first release that knows it
	kind  kind
	// least and most bound a number, inclusive unless openLeast or openMost.
	least, most         float64
	openLeast, openMost bool
	powerOfTwo          bool
	// nativeOnly options do nothing with backend:cudaMallocAsync.
	nativeOnly bool
	// fails is what PyTorch says when a number is out of bounds.
	fails string
	note  string
}

const noLimit = 1 << 53 // whole numbers beyond are not exact in a float64

// options is the table of all keys. The releases are those in which the option's change appeared; where only the date
// of the change is known, the next release is given.
func options() []option {
	v := func(major, minor int) Version { return Version{major, minor, 0, true} }
	return []option{
		{key: "backend", since: v(2, 0), kind: backend,
			fails: "Unknown allocator backend, options are native and cudaMallocAsync"},
		{key: "max_split_size_mb", since: v(1, 10), kind: integer, least: 20, most: noLimit, nativeOnly: true,
			fails: "CachingAllocator option max_split_size_mb too small, must be >= 20"},
		{key: "max_non_split_rounding_mb", since: v(2, 4), kind: integer, least: 20, most: noLimit, nativeOnly: true,
			fails: "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20"},
		{key: "roundup_power2_divisions", since: v(1, 11), kind: roundup, nativeOnly: true,
			fails: "For roundups, the divisions has to be power of 2"},
		{key: "garbage_collection_threshold", since: v(1, 12), kind: fraction, least: 0, most: 1, openLeast: true,
			openMost: true, nativeOnly: true,
			fails: "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
		{key: "expandable_segments", since: v(2, 1), kind: boolean, nativeOnly: true},
		{key: "release_lock_on_cudamalloc", since: v(2, 1), kind: boolean, nativeOnly: true},
		{key: "release_lock_on_hipmalloc", since: v(2, 1), kind: boolean, nativeOnly: true},
		{key: "pinned_use_cuda_host_register", since: v(2, 1), kind: boolean},
		{key: "pinned_use_hip_host_register", since: v(2, 1), kind: boolean},
		{key: "pinned_num_register_threads", since: v(2, 1), kind: integer, least: 1, most: 128, powerOfTwo: true,
			fails: "Number of register threads has to be power of 2"},
		{key: "pinned_use_background_threads", since: v(2, 6), kind: boolean},
		{key: "pinned_reserve_segment_size_mb", since: v(2, 9), kind: integer, least: 0, most: noLimit, openLeast: true,
			fails: "Pinned reserve segment size has to be greater than 0"},
		{key: "pinned_max_round_threshold_mb", since: v(2, 12), kind: integer, most: noLimit},
		{key: "pinned_max_cached_size_mb", since: v(2, 12), kind: integer, most: noLimit},
		{key: "pinned_free_catch_all", since: v(2, 12), kind: boolean},
		{key: "graph_capture_record_stream_reuse", since: v(2, 10), kind: boolean},
		{key: "per_process_memory_fraction", since: v(2, 10), kind: fraction, least: 0, most: 1,
			fails: "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
		{key: "throw_on_cudamalloc_oom", since: v(2, 12), kind: boolean,
			note: "has a meaning only with a memory fraction below 1"},
		{key: "large_segment_size_mb", since: v(2, 12), kind: integer, least: 10, most: noLimit, openLeast: true,
			fails: "CachingAllocator option large_segment_size_mb must be > 10 MB"},
		{key: "expandable_segments_reserve", since: v(2, 14), kind: opaque},
		{key: "expandable_segments_reserve_by_class", since: v(2, 14), kind: opaque},
	}
}

func findOption(key string) (option, bool) {
	for _, o := range options() {
		if o.key == key {
			return o, true
		}
	}
	return option{}, false
}
