package logging

import "github.com/alecthomas/kong"

// Help holds the help texts of the flags that are too long for a struct tag. A tag refers to a text by the key of the
// text in Help.
var Help = kong.Vars{
	"logging_log_rate": "" +
		"Most log lines per second with the same message; more are counted only. 0: no limit, so clients can " +
		"fill the disk.",
}
