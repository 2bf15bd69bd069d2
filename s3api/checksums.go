package s3api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/objects"
)

const (
	headerAlgorithm    = checksumPrefix + "Algorithm"
	headerChecksumType = checksumPrefix + "Type"
	headerObjectSize   = "X-Amz-Mp-Object-Size"
	// The types of checksums: of a body, or of the checksums of its parts.
	fullObject = "FULL_OBJECT"
	composite  = "COMPOSITE"
)

// checksum is the checksum that an object in parts shall have.
type checksum struct {
	name      string // as objects keep it; empty: none
	composite bool
}

func (c checksum) kind() string {
	if c.composite {
		return composite
	}
	return fullObject
}

// checksumOf returns the checksum that an upload was created for. It is kept among those of the upload, as
// the algorithm and the type.
func checksumOf(u *objects.Upload) checksum {
	for _, s := range u.Sums {
		return checksum{s.Name, s.Value == composite}
	}
	return checksum{}
}

// algorithmOf reads the header that names an algorithm; it may be absent.
func algorithmOf(header http.Header) (name string, refusal *Error) {
	value := header.Get(headerAlgorithm)
	name = strings.ToLower(value)
	if _, known := checksumNames[name]; !known && value != "" {
		return "", invalidRequest("Checksum algorithm provided is unsupported. Please try again with any of the valid types: " +
			"[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
	}
	return name, nil
}

// newChecksum reads the headers of CreateMultipartUpload.
func newChecksum(header http.Header) ([]objects.Pair, *Error) {
	name, refusal := algorithmOf(header)
	if refusal != nil {
		return nil, refusal
	}
	kind := header.Get(headerChecksumType)
	if name == "" {
		if kind != "" {
			return nil, invalidRequest("The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
		}
		return nil, nil
	}
	switch {
	case kind == "" && name == "crc64nvme":
		kind = fullObject
	case kind == "":
		kind = composite
	case kind != fullObject && kind != composite:
		return nil, invalidRequest("Value for x-amz-checksum-type header is invalid.")
	case kind == fullObject && crcs[name].bits == 0, kind == composite && name == "crc64nvme":
		return nil, invalidRequest("The %s checksum type cannot be used with the %s checksum algorithm.", kind,
			strings.ToLower(name))
	}
	return []objects.Pair{{Name: name, Value: kind}}, nil
}

// completion is what the headers of CompleteMultipartUpload say of the object.
type completion struct {
	sums []objects.Pair // at most one
	kind string         // empty: nothing
	size int64          // negative: nothing
}

// completedBy reads the headers of CompleteMultipartUpload, and takes off what is not of its document.
func completedBy(header http.Header) (c completion, refusal *Error) {
	c = completion{kind: header.Get(headerChecksumType), size: -1}
	if c.kind != "" && c.kind != fullObject && c.kind != composite {
		return c, invalidRequest("Value for x-amz-checksum-type header is invalid.")
	}
	for name := range header {
		if _, digest := digests[name]; digest && strings.HasPrefix(name, checksumPrefix) {
			c.sums = append(c.sums, objects.Pair{
				Name: strings.ToLower(strings.TrimPrefix(name, checksumPrefix)), Value: header.Get(name),
			})
			header.Del(name)
		}
	}
	if len(c.sums) > 1 {
		return c, invalidRequest("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
	}
	if s := header.Get(headerObjectSize); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return c, invalidRequest("Value for x-amz-mp-object-size header is invalid.")
		}
		c.size = n
	}
	return c, nil
}

// check judges the parts of which an object is made, and returns its checksum.
func (c *completion) check(u *objects.Upload, parts []objects.Part, named []namedPart) ([]objects.Pair, error) {
	if err := checkParts(parts, named); err != nil {
		return nil, err
	}
	size := int64(0)
	for i := range parts {
		size += parts[i].Size
	}
	if c.size >= 0 && c.size != size {
		return nil, invalidRequest("The provided 'x-amz-mp-object-size' header value %d does not match what was computed: %d",
			c.size, size)
	}
	of := checksumOf(u)
	if of.name == "" && len(c.sums) > 0 { // the parts may have what is needed
		of = checksum{c.sums[0].Name, c.kind == composite || strings.Contains(c.sums[0].Value, "-")}
		if crcs[of.name].bits == 0 && !of.composite || of.composite && of.name == "crc64nvme" {
			return nil, invalidRequest("The %s checksum type cannot be used with the %s checksum algorithm.", of.kind(), of.name)
		}
	}
	switch {
	case of.name == "":
		return nil, nil
	case c.kind != "" && c.kind != of.kind():
		return nil, invalidRequest("The upload was created using the %s checksum mode. The complete request must use the same "+
			"checksum mode.", of.kind())
	case len(c.sums) > 0 && c.sums[0].Name != of.name:
		return nil, invalidRequest("The upload was created using a %s checksum. The complete request has one by %s.", of.name,
			c.sums[0].Name)
	}
	value, err := of.compute(parts)
	if err != nil {
		return nil, err
	}
	sums := []objects.Pair{{Name: of.name, Value: value}}
	if refusal := c.compare(sums); refusal != nil {
		return nil, refusal
	}
	return sums, nil
}

// compare refuses checksums of an object that are not what the request says. Some clients leave out the
// number of parts.
func (c *completion) compare(sums []objects.Pair) *Error {
	for _, s := range c.sums {
		if !slices.ContainsFunc(sums, func(has objects.Pair) bool {
			digest, _, _ := strings.Cut(has.Value, "-")
			return has.Name == s.Name && (has.Value == s.Value || digest == s.Value)
		}) {
			return refuse(http.StatusBadRequest, "BadDigest", "The %s you specified did not match the calculated checksum.",
				checksumNames[s.Name])
		}
	}
	return nil
}

// compute makes the checksum of an object of those of its parts.
func (c checksum) compute(parts []objects.Part) (string, error) {
	of := digests[http.CanonicalHeaderKey(checksumPrefix+c.name)]()
	crc, all := crcs[c.name], uint64(0)
	for i := range parts {
		p := &parts[i]
		at := slices.IndexFunc(p.Sums, func(s objects.Pair) bool { return s.Name == c.name })
		if at < 0 {
			return "", invalidRequest("The complete request needs a %s checksum of each part. It was not sent with part %d.",
				c.name, p.Number)
		}
		sum, err := base64.StdEncoding.DecodeString(p.Sums[at].Value)
		if err != nil || len(sum) != of.Size() {
			return "", errors.New("the checksum of a part is damaged")
		}
		if c.composite {
			_, _ = of.Write(sum)
		} else {
			all = crc.combine(all, crc.value(sum), p.Size)
		}
	}
	if c.composite {
		return base64.StdEncoding.EncodeToString(of.Sum(nil)) + "-" + strconv.Itoa(len(parts)), nil
	}
	whole := binary.BigEndian.AppendUint64(nil, all)
	return base64.StdEncoding.EncodeToString(whole[8-of.Size():]), nil
}

// checksumType is the type of an object's checksums: one of checksums has their number at its end.
func checksumType(sums []objects.Pair) string {
	for _, s := range sums {
		if strings.Contains(s.Value, "-") { // no digit of base64
			return composite
		}
	}
	return fullObject
}

// sums appends elements with checksums.
func (x *xmlBuffer) sums(sums []objects.Pair) {
	for _, s := range sums {
		x.text("Checksum"+checksumNames[s.Name], s.Value)
	}
}

// sumsType appends an element with the type of checksums, if there are some.
func (x *xmlBuffer) sumsType(sums []objects.Pair) {
	if len(sums) > 0 {
		x.text("ChecksumType", checksumType(sums))
	}
}

// checksum appends elements that say which checksum an upload will have.
func (x *xmlBuffer) checksum(u *objects.Upload) {
	if c := checksumOf(u); c.name != "" {
		x.text("ChecksumAlgorithm", checksumNames[c.name])
		x.text("ChecksumType", c.kind())
	}
}

// copiedChecksum returns the algorithm by which a copy has a new checksum, empty: the source's are kept. A
// copy has no parts, so it has no checksum of theirs.
func copiedChecksum(header http.Header, of []objects.Pair) (string, *Error) {
	name, refusal := algorithmOf(header)
	if name == "" && checksumType(of) == composite {
		name = of[0].Name
	}
	return name, refusal
}

// sumBy makes the body compute a checksum by an algorithm, unless it comes with one: then by this one only.
func (b *body) sumBy(algorithm string) *Error {
	if algorithm == "" {
		return nil
	}
	name := http.CanonicalHeaderKey(checksumPrefix + algorithm)
	for _, d := range b.digests {
		if strings.HasPrefix(d.name, checksumPrefix) {
			if d.name != name {
				return invalidRequest("Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
					algorithm, strings.ToLower(strings.TrimPrefix(d.name, checksumPrefix)))
			}
			return nil
		}
	}
	b.digests = append(b.digests, &digest{name: name, Hash: digests[name]()})
	return nil
}

// summing returns a body with its checksum by an algorithm, which is complete once the body is.
func summing(from io.Reader, algorithm string) (io.Reader, []objects.Pair) {
	if algorithm == "" {
		return from, nil
	}
	s := &summed{from: from, Hash: digests[http.CanonicalHeaderKey(checksumPrefix+algorithm)]()}
	s.sums = []objects.Pair{{Name: algorithm}}
	return s, s.sums
}

type summed struct {
	from io.Reader
	hash.Hash
	sums []objects.Pair
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	_, _ = s.Write(p[:n])
	if errors.Is(err, io.EOF) {
		s.sums[0].Value = base64.StdEncoding.EncodeToString(s.Sum(nil))
	}
	return n, err
}

// crc is a cyclic redundancy check: its polynomial without the highest power, lowest power first, as package
// hash has it.
type crc struct {
	polynomial uint64
	bits       int // 0: it is none
}

var crcs = map[string]crc{
	"crc32": {crc32.IEEE, 32}, "crc32c": {crc32.Castagnoli, 32}, "crc64nvme": {crc64NVMEPolynomial, 64},
}

// value reads a checksum.
func (c crc) value(sum []byte) (v uint64) {
	for _, b := range sum {
		v = v<<8 | uint64(b)
	}
	return v
}

// combine returns the check of a body that consists of two, of which the second has n bytes. The check of
// a body is the rest of its polynomial: n more bytes multiply it by x to the power of 8n. What a check
// begins and ends with is cancelled, as it is the same number.
func (c crc) combine(first, second uint64, n int64) uint64 {
	power := uint64(1) << (c.bits - 1) // 1
	for square := power >> 8; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = c.multiply(power, square)
		}
		square = c.multiply(square, square)
	}
	return c.multiply(power, first) ^ second
}

// multiply multiplies two rests.
func (c crc) multiply(a, b uint64) (product uint64) {
	for at := uint64(1) << (c.bits - 1); at != 0; at >>= 1 {
		if a&at != 0 {
			product ^= b
		}
		carry := b & 1
		if b >>= 1; carry != 0 {
			b ^= c.polynomial
		}
	}
	return product
}
