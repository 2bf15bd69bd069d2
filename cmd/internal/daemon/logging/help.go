package logging

import "github.com/alecthomas/kong"

// Help are the help texts of flags that are too long for their tags.
var Help = kong.Vars{
	"logging_log_rate": "" +
		"Most log lines per second with the same message; more are counted only. 0: no limit, so clients can " +
		"fill the disk.",
}
