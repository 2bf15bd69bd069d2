package s3api_test

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/s3api"
)

var hashes = map[string]func() hash.Hash{
	"CRC32":     func() hash.Hash { return crc32.NewIEEE() },
	"CRC32C":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"CRC64NVME": func() hash.Hash { return crc64.New(crc64.MakeTable(0x9a6c9329ac4bc9b5)) },
	"SHA1":      sha1.New, "SHA256": sha256.New,
}

// sumOf is the checksum of texts one after the other.
func sumOf(algorithm string, texts ...string) string {
	h := hashes[algorithm]()
	for _, text := range texts {
		_, _ = h.Write([]byte(text))
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// sumOfSums is the composite checksum of parts.
func sumOfSums(algorithm string, parts ...string) string {
	all := ""
	for _, part := range parts {
		sum, _ := base64.StdEncoding.DecodeString(sumOf(algorithm, part))
		all += string(sum)
	}
	return fmt.Sprintf("%s-%d", sumOf(algorithm, all), len(parts))
}

func TestChecksOfBodiesAreCombined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "first")
		n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 1<<20)).Draw(t, "second")
		second := append(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "beginning"), make([]byte, n)...)
		for _, algorithm := range []string{"CRC32", "CRC32C", "CRC64NVME"} {
			value := func(texts ...[]byte) uint64 {
				h := hashes[algorithm]()
				for _, text := range texts {
					_, _ = h.Write(text)
				}
				return binary.BigEndian.Uint64(append(make([]byte, 8-h.Size()), h.Sum(nil)...))
			}
			got := s3api.CombineCRC(strings.ToLower(algorithm), value(first), value(second), int64(len(second)))
			require.Equal(t, value(first, second), got, algorithm)
		}
	})
}

// upload begins an upload of a key, and sends parts; those with a checksum by the algorithm that is named.
func (s *server) upload(uri string, parts []string, sent string, headers ...string) (id string, etags []string) {
	s.t.Helper()
	id = between(s.want(200, "", "POST", uri+"?uploads", "", headers...).body, "UploadId")
	for i, part := range parts {
		var header []string
		if sent != "" {
			header = []string{"x-amz-checksum-" + sent, sumOf(sent, part)}
		}
		a := s.want(200, "", "PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", uri, 2*i+1, id), part, header...)
		etags = append(etags, a.header.Get("ETag"))
	}
	return id, etags
}

// completion is the document that names parts, with elements of their own.
func completion(etags []string, more ...string) string {
	doc := "<CompleteMultipartUpload>"
	for i, etag := range etags {
		doc += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag>", 2*i+1, etag)
		if i < len(more) {
			doc += more[i]
		}
		doc += "</Part>"
	}
	return doc + "</CompleteMultipartUpload>"
}

func TestChecksumsOfUploads(t *testing.T) {
	race.Skip(t)
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	parts := []string{strings.Repeat("a", 5<<20), strings.Repeat("bc", 5<<19), "the end"}
	body := strings.Join(parts, "")
	for _, c := range []struct{ algorithm, kind, want string }{
		{"CRC32", "", "COMPOSITE"}, {"CRC32", "FULL_OBJECT", "FULL_OBJECT"}, {"CRC32C", "COMPOSITE", "COMPOSITE"},
		{"CRC32C", "FULL_OBJECT", "FULL_OBJECT"}, {"CRC64NVME", "", "FULL_OBJECT"}, {"SHA1", "", "COMPOSITE"},
		{"SHA256", "COMPOSITE", "COMPOSITE"},
	} {
		name := "x-amz-checksum-" + c.algorithm
		want := sumOfSums(c.algorithm, parts...)
		if c.want == "FULL_OBJECT" {
			want = sumOf(c.algorithm, body)
		}
		headers := []string{"x-amz-checksum-algorithm", c.algorithm}
		if c.kind != "" {
			headers = append(headers, "x-amz-checksum-type", c.kind)
		}
		sent := "" // then the server computes them
		if c.kind != "" {
			sent = c.algorithm
		}
		id, etags := s.upload("/abc/k", parts, sent, headers...)
		listed := s.want(200, "", "GET", "/abc/k?uploadId="+id, "").body
		require.Contains(t, listed, "<ChecksumAlgorithm>"+c.algorithm+"</ChecksumAlgorithm><ChecksumType>"+c.want+"<")
		require.Contains(t, listed, "<Checksum"+c.algorithm+">"+sumOf(c.algorithm, parts[1])+"<")
		require.Contains(t, s.want(200, "", "GET", "/abc?uploads", "").body, "<ChecksumAlgorithm>"+c.algorithm)
		s.want(400, "InvalidRequest", "PUT", "/abc/k?partNumber=1&uploadId="+id, "x", "x-amz-checksum-"+
			map[bool]string{true: "sha1", false: "crc32"}[c.algorithm == "CRC32"], sumOf("CRC32", "x"))

		// What is wrong.
		end := "/abc/k?uploadId=" + id
		element := func(sum string) string {
			return "<Checksum" + c.algorithm + ">" + sum + "</Checksum" + c.algorithm + ">"
		}
		good := completion(etags, element(sumOf(c.algorithm, parts[0])))
		s.want(400, "BadDigest", "POST", end, good, name, sumOf(c.algorithm, "x"))
		s.want(400, "BadDigest", "POST", end, good, name, "bad")
		s.want(400, "InvalidPart", "POST", end, completion(etags, "", element(sumOf(c.algorithm, parts[0]))))
		s.want(400, "InvalidPart", "POST", end, completion(etags, "", element("")))
		s.want(400, "MalformedXML", "POST", end, completion(etags, "<ChecksumX>x</ChecksumX>"))
		other := map[string]string{"COMPOSITE": "FULL_OBJECT", "FULL_OBJECT": "COMPOSITE"}[c.want]
		s.want(400, "InvalidRequest", "POST", end, good, "x-amz-checksum-type", other)
		s.want(400, "InvalidRequest", "POST", end, good, "x-amz-checksum-type", "ANY")
		for _, size := range []string{"1", "-1", "x", fmt.Sprint(len(body) + 1)} {
			s.want(400, "InvalidRequest", "POST", end, good, "x-amz-mp-object-size", size)
		}
		s.want(400, "InvalidRequest", "POST", end, good, "x-amz-checksum-sha1", sumOf("SHA1", body), "x-amz-checksum-crc32",
			sumOf("CRC32", body))

		for range 2 { // the second time it has been completed
			a := s.want(200, "", "POST", end, good, name, want, "x-amz-checksum-type", c.want, "x-amz-mp-object-size",
				fmt.Sprint(len(body)))
			require.Contains(t, a.body, element(want)+"<ChecksumType>"+c.want+"<")
		}
		s.want(400, "BadDigest", "POST", end, good, name, sumOf(c.algorithm, "x"))
		for _, method := range []string{"HEAD", "GET"} {
			a := s.want(200, "", method, "/abc/k", "", "x-amz-checksum-mode", "ENABLED")
			require.Equal(t, []string{want, c.want}, []string{a.header.Get(name), a.header.Get("x-amz-checksum-type")})
			require.Empty(t, s.want(200, "", method, "/abc/k", "").header.Get(name))
			for i := range parts {
				a = s.want(206, "", method, fmt.Sprintf("/abc/k?partNumber=%d", 2*i+1), "", "x-amz-checksum-mode", "ENABLED")
				require.Equal(t, []string{sumOf(c.algorithm, parts[i]), c.want, "3"}, []string{a.header.Get(name),
					a.header.Get("x-amz-checksum-type"), a.header.Get("x-amz-mp-parts-count")})
			}
			require.Empty(t, s.want(206, "", method, "/abc/k?partNumber=1", "").header.Get(name))
		}
		doc := s.want(200, "", "GET", "/abc/k?attributes", "", "x-amz-object-attributes", "Checksum, ObjectParts").body
		require.Contains(t, doc, "<Checksum>"+element(want)+"<ChecksumType>"+c.want+"<")
		for i, number := range []int{1, 3, 5} {
			require.Contains(t, doc, fmt.Sprintf("<Part><PartNumber>%d</PartNumber><Size>%d</Size>%s</Part>", number,
				len(parts[i]), element(sumOf(c.algorithm, parts[i]))))
		}

		// A copy is whole.
		a := s.want(200, "", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k")
		require.Contains(t, a.body, element(sumOf(c.algorithm, body))+"<ChecksumType>FULL_OBJECT<")
		a = s.want(200, "", "HEAD", "/abc/copy", "", "x-amz-checksum-mode", "ENABLED")
		require.Equal(t, sumOf(c.algorithm, body), a.header.Get(name))
		id, _ = s.upload("/abc/parts", nil, "", headers...)
		a = s.want(200, "", "PUT", "/abc/parts?partNumber=1&uploadId="+id, "", "x-amz-copy-source", "/abc/copy",
			"x-amz-copy-source-range", "bytes=0-9")
		require.Contains(t, a.body, element(sumOf(c.algorithm, body[:10])))
	}
	a := s.want(200, "", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-checksum-algorithm", "CRC64NVME")
	require.Contains(t, a.body, "<ChecksumCRC64NVME>"+sumOf("CRC64NVME", body)+"<")
	s.want(400, "InvalidRequest", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-checksum-algorithm", "MD5")
}

func TestChecksumsThatAreRefused(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	for _, headers := range [][]string{
		{"x-amz-checksum-algorithm", "MD5"}, {"x-amz-checksum-type", "COMPOSITE"},
		{"x-amz-checksum-algorithm", "SHA256", "x-amz-checksum-type", "FULL_OBJECT"},
		{"x-amz-checksum-algorithm", "CRC64NVME", "x-amz-checksum-type", "COMPOSITE"},
		{"x-amz-checksum-algorithm", "CRC32", "x-amz-checksum-type", "OTHER"},
	} {
		s.want(400, "InvalidRequest", "POST", "/abc/k?uploads", "", headers...)
	}
	// Without an algorithm, what the parts have is good.
	id, etags := s.upload("/abc/k", []string{"one"}, "CRC32")
	end := "/abc/k?uploadId=" + id
	s.want(400, "InvalidRequest", "POST", end, completion(etags), "x-amz-checksum-sha256", sumOfSums("SHA256", "one"))
	s.want(400, "InvalidRequest", "POST", end, completion(etags), "x-amz-checksum-sha256", sumOf("SHA256", "one"))
	s.want(400, "BadDigest", "POST", end, completion(etags), "x-amz-checksum-crc32", sumOf("CRC32", "two"))
	s.want(400, "InvalidPart", "POST", end, completion(etags, "<ChecksumSHA1>"+sumOf("SHA1", "one")+"</ChecksumSHA1>"))
	s.want(200, "", "POST", end, completion(etags), "x-amz-checksum-crc32", sumOf("CRC32", "one"))
	id, etags = s.upload("/abc/c", []string{"one"}, "SHA256", "x-amz-checksum-algorithm", "SHA256")
	digest, _, _ := strings.Cut(sumOfSums("SHA256", "one"), "-")
	a := s.want(200, "", "POST", "/abc/c?uploadId="+id, completion(etags), "x-amz-checksum-sha256", digest)
	require.Contains(t, a.body, digest+"-1<", "the number of parts may be left out")
	require.Equal(t, sumOf("CRC32", "one"), s.want(200, "", "HEAD", "/abc/k", "", "x-amz-checksum-mode", "ENABLED").
		header.Get("x-amz-checksum-crc32"))
}

// TestAnswersAboutChecksumsToTheLetter: as TestAnswersToTheLetter, also for attributes.
func TestAnswersAboutChecksumsToTheLetter(t *testing.T) {
	l := newLetters(t)
	l.ask("PUT /abc", "")
	l.ask("PUT /plain", "", "x-evenkeel-bucket-kind", "plain")
	l.ask("PUT /plain/k", "plain")
	const algorithm, kind = "x-amz-checksum-algorithm", "x-amz-checksum-type"
	const size = "x-amz-mp-object-size"
	algorithms := slices.Sorted(maps.Keys(hashes))
	sum := func(by string, texts ...string) []string {
		return []string{"x-amz-checksum-" + by, sumOf(by, texts...)}
	}
	for _, by := range append(algorithms, "crc32", "MD5", "") {
		for _, of := range []string{"", "COMPOSITE", "FULL_OBJECT", "composite"} {
			l.ask("POST /abc/k?uploads", "", algorithm, by, kind, of)
			known := hashes[by] != nil
			if known && of == "" {
				up := l.last()
				for _, sent := range algorithms {
					l.ask("PUT /abc/k?partNumber=1&uploadId="+up, "hello", sum(sent, "hello")...)
				}
				l.ask("PUT /abc/k?partNumber=1&uploadId="+up, "hello", sum(by, "other")...)
				l.ask("PUT /abc/k?partNumber=1&uploadId="+up, "hello")
				l.ask("GET /abc/k?uploadId="+up, "")
				end := "POST /abc/k?uploadId=" + up
				doc := completion([]string{helloETag})
				for _, sent := range algorithms {
					l.ask(end, doc, sum(sent, "other")...)
				}
				for _, headers := range [][]string{
					{kind, "COMPOSITE"}, {kind, "FULL_OBJECT"}, {kind, "x"}, {size, "4"}, {size, "-1"}, {size, "0"}, {size, "x"},
					append(sum("SHA1", "hello"), sum("SHA256", "hello")...), {size, "5"},
				} {
					l.ask(end, doc, append(headers, "x-amz-checksum-"+by, "x")...)
				}
				l.ask(end, completion([]string{helloETag}, "<ChecksumCRC32>x</ChecksumCRC32>"))
				l.ask(end, doc, size, "5")
				l.ask(end, doc, sum(by, "other")...)
				l.ask(end, doc)
				l.ask("GET /abc/k", "", "x-amz-checksum-mode", "enabled")
				l.ask("GET /abc/k?partNumber=1", "", "x-amz-checksum-mode", "ENABLED")
				l.ask("GET /abc/k?attributes", "", "x-amz-object-attributes", "ETag,Checksum,ObjectParts,StorageClass,ObjectSize")
				for _, other := range append(algorithms, "MD5", "") {
					l.ask("PUT /abc/copy", "", "x-amz-copy-source", "/abc/k", algorithm, other)
				}
			}
		}
	}
	l.ask("GET /abc?uploads", "")
	l.ask("PUT /plain/copy", "", "x-amz-copy-source", "/abc/k")
	l.ask("HEAD /plain/copy", "")

	// Uploads without an algorithm have what their parts came with.
	for _, by := range algorithms {
		composite, full := sumOfSums(by, "hello"), sumOf(by, "hello")
		for _, sent := range []string{"", by} {
			l.ask("POST /abc/k?uploads", "")
			up := l.last()
			if sent == "" {
				l.ask("PUT /abc/k?partNumber=1&uploadId="+up, "hello")
			} else {
				l.ask("PUT /abc/k?partNumber=1&uploadId="+up, "hello", sum(sent, "hello")...)
			}
			end := "POST /abc/k?uploadId=" + up
			doc := completion([]string{helloETag})
			for _, headers := range [][]string{
				{kind, "COMPOSITE", size, "1"}, {"x-amz-checksum-" + by, "x", kind, "FULL_OBJECT"},
				{"x-amz-checksum-" + by, "x", kind, "COMPOSITE"}, {"x-amz-checksum-" + by, "x-1"},
				{"x-amz-checksum-" + by, composite, kind, "FULL_OBJECT"}, {"x-amz-checksum-" + by, full},
				{"x-amz-checksum-" + by, composite},
			} {
				l.ask(end, doc, headers...)
			}
		}
	}

	// Attributes.
	const asked = "x-amz-object-attributes"
	l.ask("PUT /abc/k", "hello", sum("SHA256", "hello")...)
	for _, names := range []string{
		"", ",", "ETag", "ETag,", "ETag, Checksum", "ObjectParts", "StorageClass", "ObjectSize", "etag", "ETag,Other",
	} {
		l.ask("GET /abc/k?attributes", "", asked, names)
	}
	for _, n := range []string{"", "0", "1", "1001", "2147483647", "2147483648", "-1", "x"} {
		l.ask("GET /abc/copy?attributes", "", asked, "ObjectParts", "x-amz-max-parts", n)
		l.ask("GET /abc/k?attributes", "", asked, "ObjectParts", "x-amz-part-number-marker", n)
	}
	for _, key := range []string{"abc/none", "plain/k", "none/k"} {
		l.ask("GET /"+key+"?attributes", "", asked, "ETag")
	}
	same(t, "testdata/answersaboutchecksums.txt", l.all.String())
}

func TestAttributes(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	const all, header = "ETag,Checksum,ObjectParts,StorageClass,ObjectSize", "x-amz-object-attributes"
	attributes := func(uri string, headers ...string) string {
		body := s.want(200, "", "GET", uri, "", headers...).body
		_, body, _ = strings.Cut(body, `xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
		return strings.TrimSuffix(body, "</GetObjectAttributesResponse>")
	}
	s.want(200, "", "PUT", "/abc/k", "foo", "x-amz-checksum-crc32", sumOf("CRC32", "foo"))
	require.Equal(t, "<ETag>acbd18db4cc2f85cedef654fccc4a4d8</ETag><Checksum><ChecksumCRC32>"+sumOf("CRC32", "foo")+
		"</ChecksumCRC32><ChecksumType>FULL_OBJECT</ChecksumType></Checksum><StorageClass>STANDARD</StorageClass>"+
		"<ObjectSize>3</ObjectSize>", attributes("/abc/k?attributes", header, all))
	require.Equal(t, "<ObjectSize>3</ObjectSize>", attributes("/abc/k?attributes", header, "ObjectSize"))
	for _, bad := range []string{"", "Etag", "ETag,", "ETag,Other", "ETag;ObjectSize"} {
		status, code := 400, "InvalidArgument"
		if bad == "ETag," {
			status, code = 200, ""
		}
		s.want(status, code, "GET", "/abc/k?attributes", "", header, bad)
	}
	for _, bad := range []string{"-1", "x", "2147483648"} {
		s.want(400, "InvalidArgument", "GET", "/abc/k?attributes", "", header, all, "x-amz-max-parts", bad)
		s.want(400, "InvalidArgument", "GET", "/abc/k?attributes", "", header, all, "x-amz-part-number-marker", bad)
	}

	id, etags := s.upload("/abc/p", []string{strings.Repeat("a", 5<<20), strings.Repeat("b", 5<<20), "c"}, "")
	s.want(200, "", "POST", "/abc/p?uploadId="+id, completion(etags))
	const counts = "<ObjectParts><PartsCount>3</PartsCount>"
	line := func(number, size int) string {
		return fmt.Sprintf("<Part><PartNumber>%d</PartNumber><Size>%d</Size></Part>", number, size)
	}
	require.Equal(t, counts+"<PartNumberMarker>0</PartNumberMarker><NextPartNumberMarker>5</NextPartNumberMarker>"+
		"<MaxParts>1000</MaxParts><IsTruncated>false</IsTruncated>"+line(1, 5<<20)+line(3, 5<<20)+line(5, 1)+
		"</ObjectParts>", attributes("/abc/p?attributes", header, "ObjectParts"))
	require.Equal(t, counts+"<PartNumberMarker>2</PartNumberMarker><NextPartNumberMarker>3</NextPartNumberMarker>"+
		"<MaxParts>1</MaxParts><IsTruncated>true</IsTruncated>"+line(3, 5<<20)+"</ObjectParts>",
		attributes("/abc/p?attributes", header, "ObjectParts", "x-amz-max-parts", "1", "x-amz-part-number-marker", "2"))
	require.Equal(t, counts+"<PartNumberMarker>5</PartNumberMarker><MaxParts>1000</MaxParts><IsTruncated>false</IsTruncated>"+
		"</ObjectParts>", attributes("/abc/p?attributes", header, "ObjectParts", "x-amz-max-parts", "9999",
		"x-amz-part-number-marker", "5"))

	s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	version := s.want(200, "", "PUT", "/abc/k", "other").header.Get("x-amz-version-id")
	a := s.want(200, "", "GET", "/abc/k?attributes&versionId=null", "", header, "ObjectSize")
	require.Contains(t, a.body, "<ObjectSize>3</ObjectSize>")
	require.Equal(t, "null", a.header.Get("x-amz-version-id"))
	require.NotEmpty(t, a.header.Get("Last-Modified"))
	marker := s.want(204, "", "DELETE", "/abc/k", "").header.Get("x-amz-version-id")
	s.want(404, "NoSuchKey", "GET", "/abc/k?attributes", "", header, all)
	s.want(405, "MethodNotAllowed", "GET", "/abc/k?attributes&versionId="+marker, "", header, all)
	s.want(200, "", "GET", "/abc/k?attributes&versionId="+version, "", header, all)
	s.want(404, "NoSuchVersion", "GET", "/abc/none?attributes&versionId="+version, "", header, all)
	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	s.want(501, "NotImplemented", "GET", "/plain/k?attributes", "", header, all)
	require.Equal(t, http.StatusBadRequest, s.want(400, "", "GET", "/abc/k?attributes", "").status)
}

// A digest that comes in a header and in a trailer is one, and both must be right.
func TestADigestInAHeaderAndATrailer(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	right, wrong := sumOf("CRC32", "hello"), sumOf("CRC32", "other")
	put := func(status int, code, header, trailer string) {
		s.want(status, code, "PUT", "/abc/k", chunked("hello", nil, false, "x-amz-checksum-crc32:"+trailer),
			"Content-Encoding", "aws-chunked", "x-amz-decoded-content-length", "5",
			"x-amz-trailer", "x-amz-checksum-crc32", "x-amz-checksum-crc32", header)
	}
	put(400, "BadDigest", wrong, right)
	put(400, "BadDigest", right, wrong)
	put(400, "InvalidRequest", right, "x")
	put(200, "", right, right)
	body := s.want(200, "", "GET", "/abc/k?attributes", "", "x-amz-object-attributes", "Checksum").body
	require.Equal(t, 1, strings.Count(body, "<ChecksumCRC32>"), body)
}
