package care

// These are limits of objects, multipart uploads and lifecycle rules, e.g. the length of the longest key. Package
// objects refuses what is beyond them. The S3 API checks them first, in order to answer with S3's own errors.
const (
	// MaxKeyBytes is the length of the longest key of an object, in bytes.
	MaxKeyBytes = 1024
	// MaxParts is the largest number of parts of an upload, and the highest number that a part may have.
	MaxParts = 10_000
	// MaxRules is the largest number of lifecycle rules of a bucket, and MaxRuleIDBytes the length of the longest ID of
	// a rule. MaxNewer and MaxRuleTags bound the fields Newer and Tags of objects.Rule.
	MaxRules       = 100
	MaxRuleIDBytes = 255
	MaxNewer       = 100
	MaxRuleTags    = 10
)
