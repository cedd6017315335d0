// Package probe holds the small Python module that runs inside each rank, puts it into the child's environment without
// touching the user's script, and defines its wire format: one JSON object a line, appended to a file of its own by
// each rank.
package probe

// Event is one line. E says which kind:
//
//	hello   the rank imported torch: Rank, LocalRank, WorldSize, PID, Attempt, Mem, Torch, Python, Wall, A (bytes held
//	        at that moment: resident memory, or 0 when the CUDA allocator is already up)
//	mem     from here on the sizes are those of other memory: Mem, Device, and its UUID (without the GPU- or MIG- of
//	        NVML)
//	w       a window of one stage was closed: S, Step, Micro, N, A, PA, R, PR, IS, Retries, OOMs, Device
//	state   exact sizes after the first step of an optimizer: Params, Grads, Optim (bytes); a later one replaces an
//	        earlier one
//	oom     the allocator's observer fired: Device, Want, Total, Free and the memory at that moment, S the stage.
//	        Without CUDA: an out-of-memory error passed through the probe, Msg. Either may have been caught by the
//	        program
//	exc     an uncaught exception: Type, OOM, Msg, TB, S, Step, Where
//	note    something the probe could not do: Msg
//	bye     the rank ends: Step (optimizer steps completed), CostNS (time spent in the probe)
//
// Windows with N > 1 fold several; PA and PR are their maximum, the rest is that of the last one.
//
// A rank that trains on a GPU begins with "rss" and goes over to "cuda" when CUDA is initialised; a "mem" also tells of
// a change of the current GPU. Sizes before and after it may not be compared. "rss" sizes are resident memory without
// file pages, and hello's A is to be subtracted from them; "cuda" sizes need no baseline.
type Event struct {
	E string `json:"e"`
	Q int64  `json:"q"` // sequence number within the file, from 1: a gap is a loss
	T int64  `json:"t"` // nanoseconds since hello, monotonic

	Wall      float64 `json:"wall,omitempty"` // Unix seconds at hello
	Rank      int     `json:"rank,omitempty"`
	LocalRank int     `json:"local_rank,omitempty"`
	WorldSize int     `json:"world_size,omitempty"`
	PID       int     `json:"pid,omitempty"`
	Attempt   int     `json:"attempt,omitempty"`
	Mem       string  `json:"mem,omitempty"` // "cuda": PyTorch's allocator; "rss": resident host memory
	Torch     string  `json:"torch,omitempty"`
	Python    string  `json:"python,omitempty"`

	// stage: start, model-load, optimizer-init, forward, backward, optimizer-step, eval, checkpoint-save, other
	S       string `json:"s,omitempty"`
	Step    int    `json:"st,omitempty"`
	Micro   int    `json:"mb,omitempty"`
	N       int    `json:"n,omitempty"`
	A       int64  `json:"a,omitempty"`  // allocated now (rss: resident now), bytes
	PA      int64  `json:"pa,omitempty"` // its peak in the window
	R       int64  `json:"r,omitempty"`  // reserved now
	PR      int64  `json:"pr,omitempty"` // its peak in the window
	IS      int64  `json:"is,omitempty"` // inactive split bytes now (free pieces of partly used segments)
	Retries int64  `json:"rt,omitempty"` // cudaMalloc retries so far
	OOMs    int64  `json:"ooms,omitempty"`
	Device  int    `json:"d,omitempty"` // CUDA index inside the process
	UUID    string `json:"uuid,omitempty"`

	Params int64 `json:"params,omitempty"`
	Grads  int64 `json:"grads,omitempty"`
	Optim  int64 `json:"optim,omitempty"`

	Want  int64 `json:"want,omitempty"`
	Total int64 `json:"total,omitempty"`
	Free  int64 `json:"free,omitempty"`

	Type  string `json:"type,omitempty"`
	OOM   bool   `json:"oom,omitempty"`
	Msg   string `json:"msg,omitempty"`
	TB    string `json:"tb,omitempty"` // the traceback's tail, as Python would print it
	Where string `json:"where,omitempty"`

	CostNS int64 `json:"cost_ns,omitempty"`
}
