package job

import (
	"path/filepath"
	"strings"
)

// containerWrappers start the command inside an image, whose files and packages cannot be seen from here. Sources: the
// command line references of Docker 28, Podman 5 and Apptainer 1.4.
func containerWrappers() []wrapper {
	return []wrapper{
		{words: []string{"docker", "podman", "nerdctl"}, peel: peelDocker},
		{words: []string{"apptainer", "singularity"}, peel: peelApptainer},
	}
}

// peelApptainer reads apptainer exec IMAGE COMMAND: variables and the working directory are the host's.
func peelApptainer(r *reader, word string, args []string, inside func([]string)) {
	options, rest, ok := commandBehind(args, "exec|run",
		`-B --bind --mount --env --env-file -H --home --pwd --cwd -W --workdir -o --overlay
		--network --network-args --dns --hostname --apply-cgroups -S --scratch --no-mount --security --containlibs
		--fusemount --pem-path --shell
		--app --add-caps --drop-caps --cpus --cpu-shares --cpuset-cpus --memory --memory-swap --pids-limit
		--docker-host`)
	if !ok || len(rest) < 2 {
		r.blocked = word + " is not followed by an image and a command"
		return
	}
	for _, o := range options {
		switch o.name {
		case "--env":
			for pair := range strings.SplitSeq(o.value, ",") {
				r.takeVariables([]string{pair})
			}
		case "--pwd", "--cwd":
			r.enter(o.value)
		case "-e", "--cleanenv":
			r.sealed = true
		}
	}
	r.hide(word, rest[0])
	inside(rest[1:])
}

// peelDocker reads docker run IMAGE COMMAND: of the host it has the variables that -e names and the folders that -v
// shares.
func peelDocker(r *reader, word string, args []string, inside func([]string)) {
	options, rest, ok := commandBehind(args, "run|exec|container run|container exec",
		`-e --env --env-file -v --volume --mount -w --workdir --gpus --name -p --publish --network
		--net --ipc --pid --uts --shm-size --ulimit -u --user -h --hostname --runtime --entrypoint --cap-add --cap-drop
		--device -m --memory
		--memory-swap --cpus --cpuset-cpus -c --cpu-shares --label -l --log-driver --log-opt --restart --security-opt
		--tmpfs --platform --pull
		--add-host --dns --group-add --stop-timeout --stop-signal --volumes-from --userns --cidfile --annotation
		--cgroupns --oom-score-adj`)
	if !ok || len(rest) < 2 {
		r.blocked = word + " starts what its image says, which cannot be seen"
		return
	}
	r.sealed = true
	shared, workdir := map[string]string{}, ""
	for _, o := range options {
		switch o.name {
		case "-e", "--env":
			if name, _, given := strings.Cut(o.value, "="); given {
				r.takeVariables([]string{o.value})
			} else {
				r.setenv(name, r.src.Getenv(name))
			}
		case "-v", "--volume":
			if host, inside, given := strings.Cut(o.value, ":"); given {
				inside, _, _ = strings.Cut(inside, ":")
				shared[filepath.Clean(inside)] = host
			}
		case "-w", "--workdir":
			workdir = filepath.Clean(o.value)
		case "--gpus":
			r.offerGPUs(dockerGPUs(o.value), o.origin(word))
		case "--entrypoint":
			rest = append([]string{rest[0], o.value}, rest[1:]...)
		}
	}
	if host, ok := hostFolder(shared, workdir); ok {
		r.enter(host)
	} else {
		r.note("files inside the container of " + word +
			" cannot be seen; those that the command names are looked for here")
	}
	r.hide(word, rest[0])
	inside(rest[1:])
}

// hide keeps the packages of this machine away from a command that runs in an image, which may have files that are not
// here.
func (r *reader) hide(word, image string) {
	r.hidden = "the image " + image + " of " + word
	r.src.Place = Elsewhere
}

// hostFolder is where a folder of the container lies on the host.
func hostFolder(shared map[string]string, inside string) (string, bool) {
	for tail := ""; inside != "" && inside != "." && inside != "/"; inside = filepath.Dir(inside) {
		if host, ok := shared[inside]; ok {
			return filepath.Join(host, tail), true
		}
		tail = filepath.Join(filepath.Base(inside), tail)
	}
	return "", false
}

// dockerGPUs counts --gpus all, 2, device=0,1 or '"device=0,1"'; -1 for all.
func dockerGPUs(value string) int {
	value = strings.Trim(value, `"'`)
	if list, ok := strings.CutPrefix(value, "device="); ok {
		return len(strings.Split(list, ","))
	}
	if n, err := pythonInt(value); err == nil {
		return n
	}
	return -1
}
