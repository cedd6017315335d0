package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"oomguard/preflight/job"
)

// schemas are OpenAPI v3 schemas by name: Kubernetes' and Kubeflow Trainer's own, see testdata/schemas.
type schemas map[string]map[string]any

func loadSchemas(t *testing.T) schemas {
	t.Helper()
	all := schemas{}
	paths, err := filepath.Glob("testdata/schemas/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no schemas: %v", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Schemas schemas `json:"schemas"`
		}
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		maps.Copy(all, file.Schemas)
	}
	return all
}

// A problem is one place of a document that is not as its schema says.
type problem struct{ at, what string }

// check applies a schema to a value: the keywords that these schemas use. As kubectl's strict validation does, it
// refuses fields that the schema does not know.
func (all schemas) check(schema map[string]any, value any, at string) []problem {
	if ref, ok := schema["$ref"].(string); ok {
		return all.check(all[ref[strings.LastIndex(ref, "/")+1:]], value, at)
	}
	var found []problem
	for _, part := range list(schema["allOf"]) {
		found = append(found, all.check(part.(map[string]any), value, at)...)
	}
	for _, keyword := range []string{"oneOf", "anyOf"} {
		if choices := list(schema[keyword]); len(choices) > 0 && !slices.ContainsFunc(choices, func(c any) bool {
			return len(all.check(c.(map[string]any), value, at)) == 0
		}) {
			found = append(found, problem{at, "is none of the choices"})
		}
	}
	if want, ok := schema["type"].(string); ok && !isType(want, value) {
		return append(found, problem{at, fmt.Sprintf("%v is no %s", value, want)})
	}
	if allowed := list(schema["enum"]); len(allowed) > 0 && !slices.Contains(allowed, value) {
		found = append(found, problem{at, fmt.Sprintf("%v is none of %v", value, allowed)})
	}
	switch v := value.(type) {
	case map[string]any:
		found = append(found, all.checkObject(schema, v, at)...)
	case []any:
		if most, ok := schema["maxItems"].(float64); ok && float64(len(v)) > most {
			found = append(found, problem{at, "too many items"})
		}
		if items, ok := schema["items"].(map[string]any); ok {
			for i, e := range v {
				found = append(found, all.check(items, e, fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	case string:
		found = append(found, checkString(schema, v, at)...)
	case int:
		if least, ok := schema["minimum"].(float64); ok && float64(v) < least {
			found = append(found, problem{at, fmt.Sprintf("%d is below %v", v, least)})
		}
		if most, ok := schema["maximum"].(float64); ok && float64(v) > most {
			found = append(found, problem{at, fmt.Sprintf("%d is above %v", v, most)})
		}
	}
	return found
}

func (all schemas) checkObject(schema, value map[string]any, at string) []problem {
	var found []problem
	for _, name := range list(schema["required"]) {
		if _, ok := value[name.(string)]; !ok {
			found = append(found, problem{at, "lacks " + name.(string)})
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	additional, open := schema["additionalProperties"].(map[string]any)
	for name, v := range value {
		place := at + "." + name
		switch property, ok := properties[name].(map[string]any); {
		case ok:
			found = append(found, all.check(property, v, place)...)
		case open:
			found = append(found, all.check(additional, v, place)...)
		case len(properties) > 0:
			found = append(found, problem{place, "is not known"})
		}
	}
	return found
}

func checkString(schema map[string]any, value, at string) []problem {
	var found []problem
	if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(value) {
		found = append(found, problem{at, fmt.Sprintf("%q does not match %s", value, pattern)})
	}
	least, _ := schema["minLength"].(float64)
	most, limited := schema["maxLength"].(float64)
	if n := float64(len(value)); n < least || limited && n > most {
		found = append(found, problem{at, fmt.Sprintf("%q is too short or too long", value)})
	}
	return found
}

func isType(want string, value any) bool {
	switch value.(type) {
	case map[string]any:
		return want == "object"
	case []any:
		return want == "array"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case int:
		return want == "integer" || want == "number"
	case float64:
		return want == "number"
	}
	return false
}

func list(value any) []any {
	out, _ := value.([]any)
	return out
}

// manifest is one document of an example.
type manifest struct {
	file string
	doc  map[string]any
}

func (m manifest) kind() string { return fmt.Sprint(m.doc["kind"]) }

// get follows keys and indices, "spec.template.spec.containers.0".
func (m manifest) get(path string) any {
	var at any = m.doc
	for key := range strings.SplitSeq(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[key]
		case []any:
			at = v[0]
		}
	}
	return at
}

func manifests(t *testing.T) []manifest {
	t.Helper()
	paths, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(paths) < 2 {
		t.Fatalf("examples: %v %v", paths, err)
	}
	var out []manifest
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for docs := yaml.NewDecoder(f); ; {
			m := manifest{file: path}
			if err := docs.Decode(&m.doc); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			out = append(out, m)
		}
	}
	return out
}

func schemaOf(kind string) string {
	return map[string]string{
		"Job": "io.k8s.api.batch.v1.Job", "Service": "io.k8s.api.core.v1.Service",
		"PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
		"TrainJob":              "trainer.kubeflow.org/v1alpha1.TrainJob",
	}[kind]
}

// TestManifests: the examples for Kubernetes and Kubeflow are valid by the published schemas.
func TestManifests(t *testing.T) {
	all := loadSchemas(t)
	for _, m := range manifests(t) {
		schema, ok := all[schemaOf(m.kind())]
		if !ok {
			t.Errorf("%s: no schema for %s", m.file, m.kind())
			continue
		}
		for _, p := range all.check(schema, m.doc, m.kind()) {
			t.Errorf("%s: %s %s", m.file, p.at, p.what)
		}
	}
}

// TestManifestCheck: what the API server would refuse is found.
func TestManifestCheck(t *testing.T) {
	all := loadSchemas(t)
	bad := map[string]string{
		"apiVersion: batch/v1\nkind: Job\nspec:\n  template: {}\n  completion: 2\n": "Job.spec.completion is not known",
		"apiVersion: batch/v1\nkind: Job\nspec: {parallelism: two, template: {}}\n": "Job.spec.parallelism two is no integer",
		"apiVersion: batch/v1\nkind: Job\nspec: {}\n":                               "Job.spec lacks template",
		"kind: Job\nspec:\n  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: " +
			"[\"1\"]}}]}\n  template: {}\n": "Job.spec.podFailurePolicy.rules[0].onExitCodes.values[0] 1 is no integer",
		"kind: Job\nspec:\n  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {values: [1]}}]}\n  " +
			"template: {}\n": "Job.spec.podFailurePolicy.rules[0].onExitCodes lacks operator",
		"kind: TrainJob\nspec: {runtimeRef: {name: torch-distributed}, trainer: {numNodes: 2, commands: [oomguard]}}\n": "TrainJob.spec.trainer.commands is not known",
		"kind: Job\nspec:\n  template: {spec: {containers: [{name: a, env: [{name: X, valueFrom: {fieldRef: {path: " +
			"metadata.name}}}]}]}}\n": "Job.spec.template.spec.containers[0].env[0].valueFrom.fieldRef lacks fieldPath",
		"kind: Job\nspec:\n  template: {spec: {terminationGracePeriodSeconds: 90s, containers: [{name: a}]}}\n":         "Job.spec.template.spec.terminationGracePeriodSeconds 90s is no integer",
		"kind: Job\nspec:\n  template: {spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: [8]}}}]}}\n": "Job.spec.template.spec.containers[0].resources.limits.nvidia.com/gpu is none of the choices",
		"kind: Job\nspec:\n  template: {spec: {containers: [{name: a, volumeMounts: [{name: runs}]}]}}\n":               "Job.spec.template.spec.containers[0].volumeMounts[0] lacks mountPath",
		"kind: PersistentVolumeClaim\nspec: {accessModes: ReadWriteMany}\n":                                             "PersistentVolumeClaim.spec.accessModes ReadWriteMany is no array",
		"kind: Service\nspec: {clusterIP: None, publishNotReadyAddresses: \"true\"}\n":                                  "Service.spec.publishNotReadyAddresses true is no boolean",
		"kind: TrainJob\nspec: {runtimeRef: {name: x}, trainer: {image: x, numProcPerNode: auto}}\n":                    "TrainJob.spec.trainer.numProcPerNode auto is no integer",
		"kind: TrainJob\nspec: {trainer: {image: x}}\n":                                                                 "TrainJob.spec lacks runtimeRef",
	}
	for text, want := range bad {
		var m manifest
		if err := yaml.Unmarshal([]byte(text), &m.doc); err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, p := range all.check(all[schemaOf(m.kind())], m.doc, m.kind()) {
			found = append(found, p.at+" "+p.what)
		}
		if !slices.Contains(found, want) {
			t.Errorf("want %q, found %q", want, found)
		}
	}
}

// containerOf gives what a manifest runs: command and arguments, and the environment.
func containerOf(t *testing.T, m manifest) (words []string, env map[string]string) {
	t.Helper()
	at := map[string]string{"Job": "spec.template.spec.containers.0", "TrainJob": "spec.trainer"}[m.kind()]
	container, ok := m.get(at).(map[string]any)
	if !ok {
		t.Fatalf("%s: no container", m.file)
	}
	for _, word := range append(list(container["command"]), list(container["args"])...) {
		words = append(words, word.(string))
	}
	env = map[string]string{}
	for _, e := range list(container["env"]) {
		v := e.(map[string]any)
		env[v["name"].(string)] = "" // a field of the pod
		if value, ok := v["value"].(string); ok {
			env[v["name"].(string)] = value
		}
	}
	return words, env
}

// wrappedWords is the command that oomguard starts, and the status that it gives when memory ran out; 0: the command's
// own.
func wrappedWords(t *testing.T, file string, words []string) (command []string, oomExitCode int) {
	t.Helper()
	for i, word := range words {
		if code, given := strings.CutPrefix(word, "--oom-exit-code="); given {
			n, err := strconv.Atoi(code)
			if err != nil || n < 1 || n > 255 || slices.Contains(ownStatuses(), n) {
				t.Errorf("%s: %s is refused", file, word)
			}
			oomExitCode = n
		}
		if word == "--" {
			command = words[i+1:]
			break
		}
	}
	if words[0] != "oomguard" || words[1] != "run" || len(command) == 0 ||
		!slices.Contains(launcherWords(), command[0]) {
		t.Fatalf("%s runs %q", file, words)
	}
	return command, oomExitCode
}

// TestManifestsMean: what oomguard and Kubernetes make of the examples: two nodes that share one run folder, time for
// the report, and policies that see torchrun's own status.
func TestManifestsMean(t *testing.T) {
	for _, m := range manifests(t) {
		patch := "spec.runtimePatches.0.trainingRuntimeSpec.template.spec.replicatedJobs.0.template.spec.template.spec."
		pod := map[string]string{"Job": "spec.template.spec.", "TrainJob": patch}[m.kind()]
		if pod == "" {
			continue
		}
		if grace, ok := m.get(pod + "terminationGracePeriodSeconds").(int); !ok || grace <= 30 {
			t.Errorf("%s: grace %v s, torchrun alone takes 30 s", m.file, grace)
		}
		words, env := containerOf(t, m)
		words, _ = wrappedWords(t, m.file, words)
		mounts, _ := json.Marshal(m.get(pod + "containers.0.volumeMounts"))
		if dir := env["OOMGUARD_DIR"]; dir == "" || !strings.Contains(string(mounts), `"`+dir+`"`) {
			t.Errorf("%s: OOMGUARD_DIR %q is on no volume: %s", m.file, dir, mounts)
		}
		// what the cluster fills in for the second node
		maps.Copy(env, map[string]string{"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ID": "1d6a",
			"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "train-1-abcde"})
		read := job.Read(job.Sources{Argv: words, Getenv: func(name string) string { return env[name] },
			Dir: t.TempDir()})
		var environ []string
		for name, value := range env {
			environ = append(environ, name+"="+value)
		}
		node := placement(environment{environ: environ}, read)
		if node == nil || node.Key != "rdzv-1d6a" || node.Name != "1" || node.Parts != 2 ||
			node.Scheduler != "kubernetes" || node.Pod != "train-1-abcde" {
			t.Errorf("%s: placement %+v", m.file, node)
		}
	}
}

// TestJobPolicy: the policy of the example names every status that oomguard itself can give, and treats torchrun's as
// torchrun's.
func TestJobPolicy(t *testing.T) {
	actions := map[int]string{}
	var codes []int
	for _, m := range manifests(t) {
		if m.kind() == "Job" || m.kind() == "TrainJob" {
			words, _ := containerOf(t, m)
			_, code := wrappedWords(t, m.file, words)
			codes = append(codes, code)
		}
		if m.kind() != "Job" {
			continue
		}
		for _, r := range list(m.get("spec.podFailurePolicy.rules")) {
			rule := r.(map[string]any)
			codes, _ := rule["onExitCodes"].(map[string]any)
			for _, code := range list(codes["values"]) {
				if _, taken := actions[code.(int)]; !taken { // the first rule that fits decides
					actions[code.(int)] = rule["action"].(string)
				}
			}
		}
	}
	for _, code := range append(codes, exitUsage, exitRefused, exitCannotStart, exitNotExecutable, exitNotFound) {
		if actions[code] != "FailJob" {
			t.Errorf("status %d: %s", code, actions[code])
		}
	}
	for _, code := range []int{1, 128 + 9, 128 + 15} {
		if actions[code] != "Count" {
			t.Errorf("status %d: %s", code, actions[code])
		}
	}
}

// TestSlurmExample: the batch script is one that bash can read.
func TestSlurmExample(t *testing.T) {
	if out, err := exec.Command("bash", "-n", "examples/slurm-job.sh").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
