//go:build !race

package oom

const raceDetector = false
