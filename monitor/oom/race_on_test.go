//go:build race

package oom

const raceDetector = true
