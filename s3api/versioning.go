package s3api

import (
	"encoding/xml"
	"net/http"

	"github.com/evenkeel/evenkeel/objects"
)

// statusNames maps the status of a bucket (whether the bucket keeps old versions of objects) to S3's name of the
// status. In S3 a bucket that never kept versions has no status.
var statusNames = map[objects.Status]string{objects.Enabled: "Enabled", objects.Suspended: "Suspended"}

func (h *Handler) getBucketVersioning(x *exchange) error {
	in, err := h.existing(x)
	if err != nil {
		return err
	}
	return x.writeDocument("VersioningConfiguration", func(b *xmlBuffer) {
		if in != nil && in.status != objects.Never {
			b.text("Status", statusNames[in.status])
		}
	})
}

// putBucketVersioning serves a request that changes whether a bucket keeps old versions of its objects. It answers only
// when all servers act on the new setting.
func (h *Handler) putBucketVersioning(x *exchange) error {
	doc, err := h.configuration(x)
	if err != nil {
		return err
	}
	status, refusal := parseVersioning(doc)
	if refusal != nil {
		return refusal
	}
	return h.o.Objects.SetStatus(x.ctx(), x.bucket, status)
}

func parseVersioning(doc []byte) (status objects.Status, refusal *Error) {
	var c struct {
		XMLName   xml.Name `xml:"VersioningConfiguration"`
		Status    string
		MfaDelete string
		Others    []struct{ XMLName xml.Name } `xml:",any"`
	}
	if err := xml.Unmarshal(doc, &c); err != nil || len(c.Others) > 0 {
		return status, malformedVersioning()
	}
	switch c.MfaDelete {
	case "", "Disabled":
	case "Enabled":
		return status, notImplemented("MfaDelete")
	default:
		return status, malformedVersioning()
	}
	for status, name := range statusNames {
		if c.Status == name {
			return status, nil
		}
	}
	return status, malformedVersioning()
}

func malformedVersioning() *Error {
	return refuse(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate "+
		"against our published schema: a VersioningConfiguration with Status Enabled or Suspended.")
}
