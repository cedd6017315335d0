package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"oomguard/launcher/files"
)

// maxFileBytes bounds what is read; real config.json files are a few KiB, those with long label lists a few MiB.
const maxFileBytes = 64 << 20

// Load reads the architecture of the model at path: a directory that holds a config.json, or such a file itself. It
// reads nothing else and never the weights. Errors name the file, the place in it and what to do; an architecture that
// is not in the table is an *UnknownTypeError.
func Load(path string) (*Architecture, error) { return LoadAs(path, "") }

// LoadAs is Load for a run that trains another class than the one the checkpoint was saved from:
// "BertForSequenceClassification", or just "ForSequenceClassification" for that of the model's family; "" means the
// class the config names.
func LoadAs(path, class string) (*Architecture, error) {
	file, err := configFile(path)
	if err != nil {
		return nil, err
	}
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	a, err := parse(data, file, class)
	if err != nil {
		return nil, err
	}
	a.Name = path
	return a, nil
}

// configFile finds the config.json that path means.
func configFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("model %q: %w: give a directory that holds config.json, a config.json, or --params "+
			"for a lower bound", path, fs.ErrNotExist)
	case err != nil:
		return "", fmt.Errorf("model %q: %w", path, err)
	case !info.IsDir():
		return path, nil
	}
	file := filepath.Join(path, "config.json")
	info, err = os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Join(path, "adapter_config.json")); err == nil {
			return "", fmt.Errorf("model directory %q holds an adapter and no config.json (%w): give the base model "+
				"that its adapter_config.json names", path, fs.ErrNotExist)
		}
		return "", fmt.Errorf("model directory %q holds no config.json (%w): give the directory of a Hugging Face "+
			"model, or --params for a lower bound", path, fs.ErrNotExist)
	case err != nil:
		return "", fmt.Errorf("model directory %q: %w", path, err)
	case info.IsDir():
		return "", fmt.Errorf("%s is a directory, want a file: give the directory of a Hugging Face model", file)
	}
	return file, nil
}

func readFile(file string) ([]byte, error) {
	data, err := files.Read(file, maxFileBytes)
	var large *files.TooLargeError
	switch {
	case errors.As(err, &large):
		return nil, fmt.Errorf("%s is larger than %d MiB, which no config.json is: give the model's config.json, "+
			"not its weights", file, maxFileBytes>>20)
	case err != nil:
		return nil, fmt.Errorf("cannot read the model's config: %w", err)
	}
	return data, nil
}
