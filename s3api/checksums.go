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
	// The types of an object's checksum: a checksum of the whole body, or a checksum of the checksums of its parts.
	fullObject = "FULL_OBJECT"
	composite  = "COMPOSITE"
)

// checksum is the kind of checksum that an object uploaded in parts gets: the algorithm, and whether the checksum
// covers the whole body or the checksums of the parts.
type checksum struct {
	name      string // the algorithm in lower case, as package objects has it; empty: no checksum
	composite bool
}

func (c checksum) kind() string {
	if c.composite {
		return composite
	}
	return fullObject
}

// checksumOf returns the kind of checksum that was chosen when the multipart upload u was created. The kind is stored
// in u.Sums, as one pair of algorithm and type.
func checksumOf(u *objects.Upload) checksum {
	for _, s := range u.Sums {
		return checksum{s.Name, s.Value == composite}
	}
	return checksum{}
}

// algorithmOf returns the checksum algorithm that the request's headers ask for, in lower case, e.g. crc32c. It returns
// "" if they ask for none, and an error for an unknown algorithm.
func algorithmOf(header http.Header) (name string, refusal *Error) {
	value := header.Get(headerAlgorithm)
	name = strings.ToLower(value)
	if _, known := checksumNames[name]; !known && value != "" {
		return "", invalidRequest("Checksum algorithm provided is unsupported. Please try again with any of the valid types: " +
			"[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
	}
	return name, nil
}

// newChecksum returns the kind of checksum that the headers of a CreateMultipartUpload choose for the object, as one
// pair of algorithm and type. The result is nil if they choose no checksum.
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

// completion is what the headers of a CompleteMultipartUpload claim about the finished object: its checksum, the type
// of the checksum, and its size. The server compares these values with the parts.
type completion struct {
	sums []objects.Pair // the object's checksum, at most one
	kind string         // the type of the checksum; empty: not stated
	size int64          // bytes; negative: not stated
}

// completedBy reads what the headers of a CompleteMultipartUpload claim about the finished object. It deletes the
// headers that have a checksum, because later code would compare them with the request's own body.
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
		return c, twoChecksums()
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

// check compares the parts of the multipart upload u with what the client claims about them and about the finished
// object. It returns the object's checksum, or nil if neither the upload nor the request has a checksum. The parameter
// named has the parts as the client names them, in the same order as parts.
func (c *completion) check(u *objects.Upload, parts, named []objects.Part) ([]objects.Pair, error) {
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
	if of.name == "" && len(c.sums) > 0 { // the parts may still have the checksums needed
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

// compare returns an error if a checksum that the client claims for the object is not among sums, the computed
// checksums. Some clients leave out the number of parts at the end of a composite checksum. This is no error.
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

// compute returns the checksum of a whole object, of the kind c, from the checksums of its parts. It fails if a part
// has no checksum of this algorithm.
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

// checksumType returns the type of an object's checksums: COMPOSITE or FULL_OBJECT. It is COMPOSITE if a checksum in
// sums is made from checksums of parts. Such a checksum ends with "-" and the number of parts.
func checksumType(sums []objects.Pair) string {
	for _, s := range sums {
		if strings.Contains(s.Value, "-") { // not a digit of base64
			return composite
		}
	}
	return fullObject
}

// sums appends an XML element for each of an object's checksums. The algorithm is the element's name, and the value is
// its text.
func (x *xmlBuffer) sums(sums []objects.Pair) {
	for _, s := range sums {
		x.text("Checksum"+checksumNames[s.Name], s.Value)
	}
}

// sumsType appends a ChecksumType element for an object with the checksums sums. It appends nothing if sums is empty.
func (x *xmlBuffer) sumsType(sums []objects.Pair) {
	if len(sums) > 0 {
		x.text("ChecksumType", checksumType(sums))
	}
}

// checksum appends the XML elements for the kind of checksum that was chosen for the multipart upload u: its algorithm
// and its type. It appends nothing if the upload has no checksum.
func (x *xmlBuffer) checksum(u *objects.Upload) {
	if c := checksumOf(u); c.name != "" {
		x.text("ChecksumAlgorithm", checksumNames[c.name])
		x.text("ChecksumType", c.kind())
	}
}

// copiedChecksum returns the algorithm of the checksum that is computed for the copy of an object. The result is "" if
// the copy keeps the checksums of its source. The parameter `of` has the checksums of the source.
//   - If the headers of the copy request ask for an algorithm, the result is that algorithm.
//   - Otherwise only a composite checksum, which is made from the checksums of parts, is computed anew: a copy has no
//     parts.
func copiedChecksum(header http.Header, of []objects.Pair) (string, *Error) {
	name, refusal := algorithmOf(header)
	if name == "" && checksumType(of) == composite {
		name = of[0].Name
	}
	return name, refusal
}

// sumBy makes the body compute a checksum by the given algorithm while the body is read. It does nothing if algorithm
// is empty. It returns an error if the client has sent a checksum by another algorithm.
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

// summing returns a reader with the same bytes as the reader from, which also computes a checksum by the given
// algorithm. The value of the checksum is put into the returned pair when the returned reader reaches io.EOF. If
// algorithm is empty, no checksum is computed, and the pairs are nil.
func summing(from io.Reader, algorithm string) (io.Reader, []objects.Pair) {
	if algorithm == "" {
		return from, nil
	}
	s := &summed{from: from, Hash: digests[http.CanonicalHeaderKey(checksumPrefix+algorithm)]()}
	s.sums = []objects.Pair{{Name: algorithm}}
	return s, s.sums
}

// summed is a reader that computes a checksum of the bytes that are read. At io.EOF it puts the checksum into sums.
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

// crc is a kind of cyclic redundancy check (CRC), given by its polynomial. The polynomial is in the form of hash/crc32
// and hash/crc64: its highest power is left out, and its lowest power is in the highest bit.
type crc struct {
	polynomial uint64
	bits       int // 0: the algorithm is not a CRC
}

// crcs has the CRCs among the checksum algorithms, by the name of the algorithm in lower case.
var crcs = map[string]crc{
	"crc32": {crc32.IEEE, 32}, "crc32c": {crc32.Castagnoli, 32}, "crc64nvme": {crc64NVMEPolynomial, 64},
}

// value returns a CRC as a number. sum is the CRC as bytes, the highest byte first.
func (c crc) value(sum []byte) (v uint64) {
	for _, b := range sum {
		v = v<<8 | uint64(b)
	}
	return v
}

// combine returns the CRC of two bodies joined. first and second are the CRCs of the two bodies, and n is the length of
// the second body in bytes.
func (c crc) combine(first, second uint64, n int64) uint64 {
	// A CRC is the remainder of the body, as a polynomial, divided by c.polynomial. Appending n bytes multiplies the
	// remainder of the first body by x to the power of 8n. The inversions at the start and the end of a CRC cancel each
	// other.
	power := uint64(1) << (c.bits - 1) // the polynomial 1
	for square := power >> 8; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = c.multiply(power, square)
		}
		square = c.multiply(square, square)
	}
	return c.multiply(power, first) ^ second
}

// multiply returns the product of the polynomials a and b, modulo the polynomial of the CRC.
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
