package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/launcher/fence"
	"oomguard/monitor/gpu"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
	"oomguard/preflight/plan"
)

// prepared is what is known before anything is started: the job, the machine, and what the one will need of the other.
type prepared struct {
	job         *job.Job
	devices     *gpu.Snapshot // what NVML (or --devices) shows; nil: nothing was seen
	devicesErr  error         // why nothing was seen
	visible     []gpu.Device  // the devices that CUDA_VISIBLE_DEVICES leaves, in CUDA's order
	hardware    estimate.Hardware
	input       estimate.Input
	estimate    *estimate.Estimate // nil: see estimateErr
	estimateErr error
	declared    string         // the flag that named the hardware; "" when it is this machine's
	faults      []*fence.Fault // failures of oomguard itself: what they left open is unknown
}

// question says what the preparation is for.
type question struct {
	argv    []string
	here    bool // the command will run on this machine: without a GPU its ranks live in host memory
	devices gpu.Source
	fault   *fence.Fault // reading has failed before: it is left out
}

// prepare reads the job, looks at the machine once, and estimates. Its error is a usage error; everything else that
// cannot be had is kept beside what could, for the checks to judge.
func prepare(ctx context.Context, env environment, c *cli.Context, q question) (*prepared, error) {
	p := &prepared{}
	var err error
	options, err := estimateOptions(c)
	if err != nil {
		return nil, err
	}
	declared, err := declaredHardware(c)
	if err != nil {
		return nil, err
	}
	fetch, err := modelFetcher(ctx, env, c)
	if err != nil {
		return nil, err
	}
	p.look(ctx, env, q)
	if q.fault != nil {
		p.job, p.estimateErr = job.Unread(q.argv, q.fault), q.fault
		return p, nil
	}
	p.job = job.Read(job.Sources{
		Argv: q.argv, Flags: givenJobFlags(c), Getenv: env.getenv, Dir: env.dir, FetchModel: fetch,
		GPUs: p.gpuCount(declared, q.here), CPUs: runtime.NumCPU(), Place: place(q, declared), Home: homeOf,
	})
	p.faults = append(p.faults, p.job.Faults...)
	switch {
	case declared != nil:
		p.hardware, p.declared = *declared, declared.Origin
	case len(p.visible) > 0:
		p.hardware = deviceHardware(p.visible, p.job.NProc.Or(1))
	case q.here && (p.devices != nil || errors.Is(p.devicesErr, gpu.ErrNoDriver)):
		p.hardware = hostHardware(p.job.NProc.Or(1))
	}
	p.input = estimate.Input{Job: p.job, Model: p.job.Architecture, Hardware: p.hardware, Options: options}
	if p.part("estimating", func() { p.estimate, p.estimateErr = estimateJob(p.input) }); p.estimate == nil &&
		p.estimateErr == nil {
		p.estimateErr = p.faults[len(p.faults)-1]
	}
	fence.Garble("estimating", p.estimate)
	return p, nil
}

// homeOf is a user's home folder by the user database, "" when there is no such user.
func homeOf(name string) string {
	if u, err := user.Lookup(name); err == nil {
		return u.HomeDir
	}
	return ""
}

// part does a part of the preparation behind a fence.
func (p *prepared) part(name string, do func()) {
	if fault := fence.Do(name, do); fault != nil {
		p.faults = append(p.faults, fault)
	}
}

// place is where the command will run: here right afterwards, or elsewhere when the hardware was declared. Otherwise
// nobody said.
func place(q question, declared *estimate.Hardware) job.Place {
	switch {
	case q.here:
		return job.Here
	case declared != nil:
		return job.Elsewhere
	}
	return job.Unsaid
}

// modelFetcher asks the hub for models that are not on this machine; nil without --online.
func modelFetcher(ctx context.Context, env environment, c *cli.Context) (func(model.HubModel) (string, error), error) {
	if !c.Bool("online") {
		return nil, nil
	}
	hub, err := model.NewHub(env.getenv)
	if err != nil {
		return nil, usageError{err}
	}
	return func(m model.HubModel) (string, error) { return hub.Fetch(ctx, m) }, nil
}

// unknownModel says that there is nothing to estimate: the job's to answer with status 4, not an error in what was
// given.
type unknownModel struct{ why string }

func (e unknownModel) Error() string { return e.why }

// giveModel is what makes an estimate possible. A number of parameters alone gives a lower bound, and is no answer.
const giveModel = "give --model DIR or config.json of a language model; of other programs measure one small run " +
	"(--params N gives a lower bound)"

func estimateJob(in estimate.Input) (*estimate.Estimate, error) {
	switch j := in.Job; {
	case in.Model != nil:
		return estimate.Run(in)
	case j.Model.Known:
		return nil, unknownModel{fmt.Sprintf("the size of the model %s is not known: %s", j.Model.Value,
			j.ModelParams.Origin)}
	}
	return nil, unknownModel{"the model is not known; " + giveModel}
}

func estimateOptions(c *cli.Context) (estimate.Options, error) {
	o := estimate.DefaultOptions()
	var err error
	if o.HeadroomPercent, err = parseHeadroom(c.String("headroom")); err != nil {
		return o, err
	}
	if o.ActivationBytes, err = sizeFlag(c, "activations"); err != nil {
		return o, err
	}
	if o.SecondModelBytes, err = sizeFlag(c, "second-models"); err != nil {
		return o, err
	}
	if o.ContextBytes, err = sizeFlag(c, "context"); err != nil {
		return o, err
	}
	if c.IsSet("activation-factor") {
		o.ActivationFactor = c.Float64("activation-factor")
		if o.ActivationFactor <= 0 {
			return o, usagef("--activation-factor %g: must be above 0 (10 to 20; 16 is usual)", o.ActivationFactor)
		}
	}
	return o, nil
}

// look asks for the devices, unless there is no one to ask.
func (p *prepared) look(ctx context.Context, env environment, q question) {
	if q.devices == nil {
		p.devicesErr = errNotAsked
		return
	}
	snap, err := q.devices.Snapshot(ctx)
	if err != nil {
		p.devicesErr = err
		return
	}
	p.see(env, snap)
}

// see keeps a snapshot, and of its devices those that CUDA will show to the command.
func (p *prepared) see(env environment, snap gpu.Snapshot) {
	p.devices = &snap
	for _, v := range preflight.Visible(preflight.AllowedEnv(env.environ), plainDevices(snap.Devices)) {
		for _, d := range snap.Devices {
			if d.Index == v.Index {
				p.visible = append(p.visible, d)
			}
		}
	}
}

var errNotAsked = errors.New("the GPUs of this machine were not asked")

func (p *prepared) gpuCount(declared *estimate.Hardware, here bool) int {
	switch {
	case declared != nil && declared.Count > 0:
		return declared.Count
	case declared != nil && !here: // those of this machine say nothing of the other one
		return -1
	case p.devices != nil:
		return len(p.visible)
	case here && errors.Is(p.devicesErr, gpu.ErrNoDriver):
		return 0
	}
	return -1 // also where nobody said where the command will run: a machine without a GPU is hardly the one
}

// leastGPU is less than any GPU that trains has.
const leastGPU = 256 << 20

// declaredHardware is what --gpu and --gpu-memory name, the second more exactly; nil when neither was given.
func declaredHardware(c *cli.Context) (*estimate.Hardware, error) {
	total, err := sizeFlag(c, "gpu-memory")
	if err != nil {
		return nil, err
	}
	if total >= 0 && total < leastGPU {
		return nil, usagef("--gpu-memory %s: no GPU has so little; is %sGB meant?", c.String("gpu-memory"),
			strings.TrimRight(c.String("gpu-memory"), " bBiIkKmMgG"))
	}
	memory := "flag --gpu-memory " + c.String("gpu-memory")
	if !c.IsSet("gpu") {
		if total < 0 {
			return nil, nil
		}
		return &estimate.Hardware{Kind: "cuda", Name: "GPU with " + c.String("gpu-memory"), TotalBytes: total,
			ContextBytes: -1, NCCLBytes: -1, Origin: memory}, nil
	}
	spec, count, err := gpu.Lookup(c.String("gpu"))
	if err != nil {
		return nil, usagef("--gpu: %w", err)
	}
	h := specHardware(spec)
	h.Count, h.Origin = count, "flag --gpu "+c.String("gpu")
	if total >= 0 {
		h.TotalBytes, h.Origin = total, h.Origin+", "+memory
	}
	return &h, nil
}

func specHardware(s gpu.Spec) estimate.Hardware {
	h := estimate.Hardware{
		Kind: "cuda", Name: s.Name, TotalBytes: s.TotalBytes, ContextBytes: s.ContextBytes, NCCLBytes: -1,
		ComputeCapability: s.ComputeCapability,
	}
	if h.ContextBytes == 0 {
		h.ContextBytes = -1
	}
	return h
}

// deviceHardware is the smallest of the devices that the ranks of this node will use: the first nproc visible ones.
func deviceHardware(visible []gpu.Device, nproc int) estimate.Hardware {
	used := visible[:min(max(nproc, 1), len(visible))]
	h := estimate.Hardware{Kind: "cuda", Count: len(visible), ContextBytes: -1, NCCLBytes: -1, Origin: "NVML"}
	for _, d := range used {
		total := d.TotalBytes - d.ReservedBytes
		if !d.MemoryKnown || h.TotalBytes > 0 && total >= h.TotalBytes {
			continue
		}
		h.Name, h.TotalBytes, h.ComputeCapability = d.Name, total, d.ComputeCapability
		if spec, ok := gpu.Match(d.Name, d.TotalBytes); ok && spec.ContextBytes > 0 {
			h.ContextBytes = spec.ContextBytes
		}
	}
	return h
}

// hostHardware is one rank's share of what the host can still give out, for training without a GPU.
func hostHardware(nproc int) estimate.Hardware {
	host, err := preflight.GatherHost("/")
	h := estimate.Hardware{
		Kind: "cpu", Name: "host memory (one rank's share)", Count: nproc, ContextBytes: -1, NCCLBytes: -1,
		Origin: "host memory: no GPU is visible here",
	}
	if err == nil || host.AvailableBytes() > 0 {
		h.TotalBytes = host.AvailableBytes() / int64(max(nproc, 1))
	}
	return h
}

// openDevices chooses who is asked for the devices: a file, or NVML in a helper process. The caller closes it.
func openDevices(env environment, c *cli.Context) (gpu.Source, error) {
	if file := c.String("devices"); file != "" {
		snap, err := gpu.ReadFile(file)
		if err != nil {
			return nil, usagef("--devices: %w", err)
		}
		return gpu.Replay(snap), nil
	}
	if c.IsSet("gpu") || c.IsSet("gpu-memory") {
		return nil, nil
	}
	source, err := gpu.OpenHelper([]string{env.executable, nvmlWord}, gpu.HelperOptions{})
	if err != nil {
		return gpu.Absent{Reason: err}, nil
	}
	return source, nil
}

// facts gathers what the checks judge.
func (p *prepared) facts(env environment, c *cli.Context, root string, mode preflight.Mode) preflight.Facts {
	f := preflight.Facts{
		Mode: mode, Units: preflight.IEC,
		Job: p.job, Estimate: p.estimate, EstimateErr: p.estimateErr, Declared: p.declared,
		DeclaredGPUs: p.hardware.Count,
		DevicesErr:   p.devicesErr, DriverFault: p.devicesErr != nil && !errors.Is(p.devicesErr, gpu.ErrNoDriver) &&
			!errors.Is(p.devicesErr, errNotAsked),
	}
	p.part("looking at earlier runs", func() { f.History = history(root) })
	p.part("planning", func() {
		if p.estimate == nil || p.estimate.Open() { // then no check asks for them
			return
		}
		if remedies, err := plan.Remedies(p.input); err == nil {
			f.Remedies = remedies
		}
	})
	if c.String("units") == "si" {
		f.Units = preflight.SI
	}
	if c.IsSet("headroom") { // otherwise the checklist decides
		f.HeadroomPercent = p.input.Options.HeadroomPercent
	}
	if p.devices != nil {
		f.Devices = plainDevices(p.devices.Devices)
	}
	f = preflight.Gather(f, preflight.Sources{
		Root: "/", Dir: env.dir, Environ: env.environ, RunFolder: root,
		LookPath: func(name string) (string, error) { return launcher.Lookup(name, env.getenv("PATH"), env.dir) },
	})
	p.faults = append(p.faults, f.Faults...)
	return f
}

func plainDevices(devices []gpu.Device) []preflight.Device {
	out := make([]preflight.Device, len(devices))
	for i, d := range devices {
		out[i] = preflight.Device{
			Index: d.Index, UUID: d.UUID, Name: d.Name, TotalBytes: d.TotalBytes, FreeBytes: d.FreeBytes,
			UsedBytes:   d.UsedBytes,
			MemoryKnown: d.MemoryKnown, ComputeMode: d.ComputeMode, MIG: d.MIG, Note: d.Note,
			ProcessesKnown: d.ProcessesKnown, Lost: d.Lost, Unknown: preflight.DeviceUnknown(d.Unknown),
		}
		for _, proc := range d.Processes {
			out[i].Processes = append(out[i].Processes, preflight.Process{
				PID: proc.PID, Name: proc.Name, UsedBytes: proc.UsedBytes, Known: proc.Known,
				Ours: preflight.OwnedBy("/", proc.PID, os.Getuid()),
			})
		}
	}
	return out
}

// deadline bounds what the devices may take before a run; the helper has its own, shorter ones.
const deviceDeadline = 25 * time.Second

func withDeadline(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, deviceDeadline)
}

// runRoot is the folder of the recorded runs, absolute.
func runRoot(env environment, c *cli.Context) string {
	root := c.String("dir")
	if !filepath.IsAbs(root) {
		root = filepath.Join(env.dir, root)
	}
	return root
}

// texts are errors as they are written.
func texts(list []error) []string {
	out := []string{}
	for _, err := range list {
		out = append(out, err.Error())
	}
	return out
}

// firstProblem is an error for commands that answer nothing when the job would end at its start. What could not be read
// leaves settings unknown, and the answer says so.
func firstProblem(j *job.Job) error {
	if len(j.Problems) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%w", errors.Join(j.Problems...))}
}
