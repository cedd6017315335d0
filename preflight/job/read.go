package job

import (
	"slices"

	"oomguard/launcher/fence"
	"oomguard/preflight/model"
)

// Read understands a training command. It never fails: what contradicts itself is in Problems, what could not be read
// in Unreadable, what cannot be determined is unknown with the reason. Every setting is taken from the strongest source
// that names it: oomguard's flags, the command line and PET_* variables, files that it names, oomguard.yaml, the
// framework's defaults for the installed version.
func Read(src Sources) *Job {
	if src.Getenv == nil {
		src.Getenv = func(string) string { return "" }
	}
	if src.LoadModel == nil {
		src.LoadModel = model.Load
	}
	r := &reader{src: src, job: &Job{Argv: slices.Clone(src.Argv)}, versions: map[string]string{}}
	r.oddOption = r.strange
	r.job.eachFact(func(_ string, f fact) { f.attach(&r.ledger) })
	r.turn(sourceFlags, r.readOwnFlags)
	r.part("oomguard.yaml", r.readOwnFile)
	r.turn(sourceCommand, r.readCommand)
	r.part("the installed versions", r.readVersions)
	r.turn(sourceScript, r.readScriptArguments)
	r.turn(sourceOwnFile, func() { r.applyOwnFile(r.ownLines) })
	r.turn(sourceModel, r.readModel)
	r.turn(sourceDefaults, r.applyDefaults)
	r.turn(sourceDerived, r.derive)
	r.part("what is unknown", r.explainUnknowns)
	r.part("what is not known in the command's words", r.tellUnread)
	r.part("what is open in a script", r.settle)
	r.job.Place = r.src.Place
	r.job.eachFact(func(key string, f fact) {
		if key != "will_fail" { // senseless text there is a reason all the same
			fence.Garble("reading the job", f)
		}
	})
	return r.job
}

// Unread is a job of which nothing is known, by a fault of ours.
func Unread(argv []string, fault *fence.Fault) *Job {
	j := &Job{Argv: slices.Clone(argv)}
	j.eachFact(func(_ string, f fact) { f.Withhold(fault.Error()) })
	return j
}
