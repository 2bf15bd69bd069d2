// Package attacks lets hostile clients loose on listd, the program, beside an honest one.
// Under each attack its memory stays bounded, the honest client is served, and afterwards
// the server is as before. EVENKEEL_ATTACK=10s makes each attack take longer, and runs
// each alone; EVENKEEL_SOAK=2m does so with all attacks at once.
package attacks
