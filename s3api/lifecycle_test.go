package s3api_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// rule is a rule with a prefix, as S3 had it first.
func rule(id, rest string) string {
	return "<Rule><ID>" + id + "</ID><Prefix>logs/</Prefix><Status>Enabled</Status>" + rest + "</Rule>"
}

func lifecycle(rules ...string) string {
	return "<LifecycleConfiguration>" + strings.Join(rules, "") + "</LifecycleConfiguration>"
}

const inDays = "<Expiration><Days>3</Days></Expiration>"

func TestLifecycleOfABucket(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(404, "NoSuchLifecycleConfiguration", "GET", "/abc?lifecycle", "")
	s.want(204, "", "DELETE", "/abc?lifecycle", "")
	const root = `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`
	begins := func(id string) string { return "<Rule><ID>" + id + "</ID>" }
	const on, off = "<Status>Enabled</Status>", "<Status>Disabled</Status>"
	for name, rules := range map[string]string{
		"days":            begins("1") + "<Prefix>a&amp;b</Prefix>" + on + inDays + "</Rule>",
		"an empty prefix": begins("1") + "<Prefix></Prefix>" + off + inDays + "</Rule>",
		"no prefix":       begins("1") + "<Filter></Filter>" + on + inDays + "</Rule>",
		"a date": begins("1") + "<Filter><Prefix>x</Prefix></Filter>" + on +
			"<Expiration><Date>2017-09-27T00:00:00.000Z</Date></Expiration></Rule>",
		"delete markers": begins("1") + "<Filter><Prefix>x</Prefix></Filter>" + on +
			"<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>",
		"sizes": begins("1") + "<Filter><And><Prefix>x</Prefix><ObjectSizeGreaterThan>0</ObjectSizeGreaterThan>" +
			"<ObjectSizeLessThan>500</ObjectSizeLessThan></And></Filter>" + on + inDays + "</Rule>",
		"a size": begins("1") + "<Filter><ObjectSizeGreaterThan>500</ObjectSizeGreaterThan></Filter>" +
			on + inDays + "</Rule>",
		"a tag": begins("1") + "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>" + on + inDays + "</Rule>",
		"tags": begins("1") + "<Filter><And><Prefix>x</Prefix><ObjectSizeLessThan>500</ObjectSizeLessThan>" +
			"<Tag><Key>a</Key><Value></Value></Tag><Tag><Key>b</Key><Value>c-d</Value></Tag></And></Filter>" + on + inDays +
			"</Rule>" + begins("2") + "<Filter></Filter>" + on + inDays + "</Rule>",
		"two": begins("1") + "<Filter></Filter>" + on + "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays>" +
			"<NewerNoncurrentVersions>100</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule>" +
			begins("2") + "<Filter></Filter>" + off + "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2147483647" +
			"</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>",
	} {
		s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(rules))
		got := s.want(200, "", "GET", "/abc?lifecycle", "").body
		require.Equal(t, root+rules+"</LifecycleConfiguration>", got[strings.Index(got, root):], name)
	}
	s.want(200, "", "PUT", "/abc?versioning",
		"<VersioningConfiguration>"+on+"</VersioningConfiguration>")
	require.Contains(t, s.want(200, "", "GET", "/abc?lifecycle", "").body, "<Rule>", "another setting leaves it alone")
	s.want(200, "", "PUT", "/abc?lifecycle", root+rule("", inDays)+rule("", inDays)+"</LifecycleConfiguration>")
	ids := regexp.MustCompile("<ID>([^<]+)</ID>").FindAllString(s.want(200, "", "GET", "/abc?lifecycle", "").body, -1)
	require.Len(t, ids, 2)
	require.NotEqual(t, ids[0], ids[1])
	s.want(204, "", "DELETE", "/abc?lifecycle", "")
	s.want(404, "NoSuchLifecycleConfiguration", "GET", "/abc?lifecycle", "")
	require.Contains(t, s.want(200, "", "GET", "/abc?versioning", "").body, "Enabled")

	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	s.want(501, "NotImplemented", "PUT", "/plain?lifecycle", lifecycle(rule("1", inDays)))
	s.want(404, "NoSuchLifecycleConfiguration", "GET", "/plain?lifecycle", "")
	s.want(204, "", "DELETE", "/plain?lifecycle", "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		s.want(404, "NoSuchBucket", method, "/none?lifecycle", lifecycle(rule("1", inDays)))
	}
}

// manyRules are more than a bucket may have.
func manyRules() []string {
	many := make([]string, 101)
	for i := range many {
		many[i] = rule(fmt.Sprint(i), inDays)
	}
	return many
}

// refusedLifecycles are documents, by the codes of their refusals.
func refusedLifecycles() map[string][]string {
	long := make([]string, 20)
	for i := range long {
		long[i] = strings.Replace(rule(fmt.Sprint(i), inDays), "logs/", strings.Repeat("p", 1000), 1)
	}
	filter := func(inner, rest string) string {
		return "<Rule><Filter>" + inner + "</Filter><Status>Enabled</Status>" + rest + "</Rule>"
	}
	expires := func(inner string) string { return rule("1", "<Expiration>"+inner+"</Expiration>") }
	noncurrent := func(inner string) string {
		return rule("1", "<NoncurrentVersionExpiration>"+inner+"</NoncurrentVersionExpiration>")
	}
	const marks = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
	const aborts = "<AbortIncompleteMultipartUpload>" +
		"<DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
	const larger = "<ObjectSizeGreaterThan>5</ObjectSizeGreaterThan>"
	tag := func(name string) string { return "<Tag><Key>" + name + "</Key><Value>v</Value></Tag>" }
	var tags string
	for i := range 11 {
		tags += tag(fmt.Sprint(i))
	}
	return map[string][]string{
		"InvalidTag": {
			lifecycle(filter("<And>"+tag("a")+tag("a")+"</And>", inDays)), lifecycle(filter(tag("aws:a"), inDays)),
			lifecycle(filter(tag(""), inDays)), lifecycle(filter(tag("a!"), inDays)),
		},
		"MalformedXML": {
			lifecycle(filter("<And><Tag/></And>", inDays)), lifecycle(filter("<Tag><Key>a</Key></Tag>", inDays)),
			lifecycle(filter(tag("a")+tag("b"), inDays)), lifecycle(filter("<Tag>"+tag("a")+"</Tag>", inDays)),
			"", "x", "<a/>", "<LifecycleConfiguration>", lifecycle(), lifecycle("<Rules/>"), lifecycle("<Rule>"),
			lifecycle(strings.Replace(rule("1", inDays), "Enabled", "enabled", 1)), lifecycle(rule("1", "<Other/>"+inDays)),
			lifecycle("<Rule><Prefix/>" + inDays + "</Rule>"), lifecycle("<Rule><Status>Enabled</Status>" + inDays + "</Rule>"),
			lifecycle(rule("1", "<Filter/>"+inDays)), lifecycle(rule("1", inDays+inDays)),
			lifecycle(rule("1", "<ID>2</ID>"+inDays)),
			lifecycle(expires("")), lifecycle(expires("<Days>x</Days>")), lifecycle(expires("<Days/>")),
			lifecycle(expires("<Days>1</Days><Days>1</Days>")),
			lifecycle(expires("<Days>1</Days><Date>2020-01-01T00:00:00Z</Date>")), lifecycle(expires("<Date>20200101</Date>")),
			lifecycle(expires("<Hours>1</Hours>")), lifecycle(noncurrent("")),
			lifecycle(noncurrent("<NewerNoncurrentVersions>1</NewerNoncurrentVersions>")),
			lifecycle(noncurrent("<Days>1</Days>")),
			lifecycle(rule("1", "<AbortIncompleteMultipartUpload/>")),
			lifecycle(rule("1", strings.ReplaceAll(aborts, "DaysAfterInitiation", "Days"))),
			lifecycle(filter("<Prefix>a</Prefix>"+larger, inDays)), lifecycle(filter("<And></And>", inDays)),
			lifecycle(filter("<And><And><Prefix>a</Prefix></And></And>", inDays)), lifecycle(filter("<Other/>", inDays)),
			lifecycle(filter("<Prefix>a</Prefix><Prefix>b</Prefix>", inDays)),
			lifecycle(filter("<And><Prefix>a</Prefix><Prefix>b</Prefix></And>", inDays)),
			lifecycle(filter(larger+"<ObjectSizeLessThan>9</ObjectSizeLessThan>", inDays)),
			lifecycle(filter("<And></And><Prefix>a</Prefix>", inDays)), lifecycle(filter("<Prefix><a/></Prefix>", inDays)),
			lifecycle(filter("<ObjectSizeGreaterThan>x</ObjectSizeGreaterThan>", inDays)),
			lifecycle(filter("<ObjectSizeLessThan><a/></ObjectSizeLessThan>", inDays)),
			lifecycle(rule("<a/>", inDays)), lifecycle(rule("1", "<Status>Enabled</Status>"+inDays)),
			lifecycle(strings.Replace(rule("1", inDays), "Enabled", "<a/>", 1)),
			lifecycle(strings.Replace(rule("1", inDays), "logs/", "<a/>", 1)),
			lifecycle(rule("1", "<Expiration/>"+aborts)), lifecycle(expires("<Date><a/></Date>")),
			lifecycle(expires("<ExpiredObjectDeleteMarker>x</ExpiredObjectDeleteMarker>")),
			lifecycle(expires("<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker><Days>1</Days>")),
			lifecycle(noncurrent("<NoncurrentDays>1</NoncurrentDays><NoncurrentDays>1</NoncurrentDays>")),
			lifecycle(noncurrent("<NoncurrentDays>x</NoncurrentDays>")),
			lifecycle(noncurrent("<NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>x</NewerNoncurrentVersions>")),
			lifecycle(rule("1", strings.ReplaceAll(aborts, ">1<", ">1</DaysAfterInitiation><DaysAfterInitiation>1<"))),
			lifecycle(rule("1", strings.ReplaceAll(aborts, ">1<", ">x<"))),
		},
		"InvalidArgument": {
			lifecycle(rule(strings.Repeat("a", 256), inDays)), lifecycle(rule("1", inDays), rule("1", inDays)),
			lifecycle(expires("<Days>0</Days>")), lifecycle(expires("<Days>-1</Days>")),
			lifecycle(expires("<Days>2147483648</Days>")),
			lifecycle(expires("<Date>2020-01-01T00:00:01Z</Date>")),
			lifecycle(expires("<Date>2020-01-01T00:00:00+01:00</Date>")),
			lifecycle(expires("<Date>1969-12-31T00:00:00Z</Date>")),
			lifecycle(noncurrent("<NoncurrentDays>0</NoncurrentDays>")),
			lifecycle(noncurrent("<NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>101</NewerNoncurrentVersions>")),
			lifecycle(noncurrent("<NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>0</NewerNoncurrentVersions>")),
			lifecycle(rule("1", strings.ReplaceAll(aborts, ">1<", ">0<"))),
			lifecycle(strings.Replace(rule("1", inDays), "logs/", strings.Repeat("p", 1025), 1)),
			lifecycle(expires("<Date>9999-12-31T23:00:00-01:00</Date>")),
			lifecycle(filter("<ObjectSizeGreaterThan>-1</ObjectSizeGreaterThan>", inDays)),
			lifecycle(filter("<ObjectSizeGreaterThan>9223372036854775807</ObjectSizeGreaterThan>", inDays)),
			lifecycle(filter("<ObjectSizeLessThan>0</ObjectSizeLessThan>", inDays)), lifecycle(long...),
			lifecycle(rule("1", "<Transition><Date>2020-01-01T00:00:01Z</Date></Transition>")),
		},
		"InvalidRequest": {
			lifecycle(rule("1", "")), lifecycle(manyRules()...), lifecycle(filter(larger, marks)),
			lifecycle(filter(larger, aborts)),
			lifecycle(expires("<ExpiredObjectDeleteMarker>false</ExpiredObjectDeleteMarker>")),
			lifecycle(filter("<And>"+larger+"<ObjectSizeLessThan>6</ObjectSizeLessThan></And>", inDays)),
			lifecycle(filter("<And><ObjectSizeGreaterThan>0</ObjectSizeGreaterThan>"+
				"<ObjectSizeLessThan>1</ObjectSizeLessThan>"+
				"</And>", inDays)),
			lifecycle(filter("<And>"+tags+"</And>", inDays)), lifecycle(filter(tag("a"), marks)),
			lifecycle(filter(tag("a"), aborts)),
			lifecycle(filter("<ObjectSizeLessThan>6</ObjectSizeLessThan>", marks)),
			lifecycle(filter("<ObjectSizeLessThan>6</ObjectSizeLessThan>", aborts)),
			lifecycle(filter("<ObjectSizeGreaterThan>0</ObjectSizeGreaterThan>", marks)),
		},
		"NotImplemented": {
			lifecycle(rule("1", "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>")),
			lifecycle(rule("1", inDays+"<NoncurrentVersionTransition/>")),
			lifecycle(filter(tag("a"), "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>"+
				"</NoncurrentVersionExpiration>")),
		},
	}
}

// closing has buckets whose deletion has begun: they have settings, and can't be listed.
type closing struct{ *listing.Client }

type closingBucket struct{ s3api.Bucket }

func (c closing) Bucket(name string) s3api.Bucket { return closingBucket{c.Client.Bucket(name)} }

func (closingBucket) List(context.Context, listing.Query) (listing.Page, error) {
	return listing.Page{}, listing.ErrNoSuchBucket
}

// TestSettingsOfClosingBuckets are not shown.
func TestSettingsOfClosingBuckets(t *testing.T) {
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	s := serve(t, closing{c}, s3api.Options{SoleWriter: true, Objects: overBlobs(t, c)})
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(rule("1", inDays)))
	for _, query := range []string{"lifecycle", "versioning", "location", "acl"} {
		s.want(404, "NoSuchBucket", "GET", "/abc?"+query, "")
	}
	s.want(404, "", "HEAD", "/abc", "")
}

func TestLifecyclesThatAreRefused(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	for code, documents := range refusedLifecycles() {
		for _, doc := range documents {
			status := 400
			if code == "NotImplemented" {
				status = 501
			}
			require.Equal(t, code, s.want(status, "", "PUT", "/abc?lifecycle", doc).code(), "%.300s", doc)
		}
	}
	s.want(404, "NoSuchLifecycleConfiguration", "GET", "/abc?lifecycle", "")
	s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(manyRules()[:100]...))
	s.want(400, "EntityTooLarge", "PUT", "/abc?lifecycle", strings.Repeat(" ", 65<<10))
}

// TestAnswersAboutLifecyclesToTheLetter: as TestAnswersToTheLetter.
func TestAnswersAboutLifecyclesToTheLetter(t *testing.T) {
	l := newLetters(t)
	l.ask("PUT /abc", "")
	l.ask("PUT /plain", "", "x-evenkeel-bucket-kind", "plain")
	refused := refusedLifecycles()
	for _, code := range slices.Sorted(maps.Keys(refused)) {
		for _, doc := range refused[code] {
			l.ask("PUT /abc?lifecycle", doc)
		}
	}
	filter := func(inner string) string {
		return "<Rule><ID>1</ID><Filter>" + inner + "</Filter><Status>Enabled</Status>" + inDays + "</Rule>"
	}
	for _, doc := range []string{
		lifecycle(filter("<And><Prefix>a</Prefix></And>")), lifecycle(filter("<Prefix></Prefix>")),
		lifecycle(filter("<ObjectSizeGreaterThan>9223372036854775806</ObjectSizeGreaterThan>")),
		lifecycle(filter("<ObjectSizeGreaterThan> 0 </ObjectSizeGreaterThan>")),
		lifecycle(filter("<ObjectSizeLessThan>9223372036854775807</ObjectSizeLessThan>")),
		lifecycle(filter("<ObjectSizeLessThan>1</ObjectSizeLessThan>")),
		lifecycle(filter("<And><ObjectSizeGreaterThan>0</ObjectSizeGreaterThan>" +
			"<ObjectSizeLessThan>2</ObjectSizeLessThan></And>")),
		lifecycle(rule(strings.Repeat("a", 255), inDays)), lifecycle(rule("1", "<Expiration><Days> 1 </Days></Expiration>")),
		lifecycle(strings.Replace(rule("1", inDays), "logs/", strings.Repeat("k", 1024), 1)),
		lifecycle(rule("1", "<Expiration><Days>2147483647</Days></Expiration>")),
		lifecycle(rule("1", "<Expiration><Date> 1970-01-01 </Date></Expiration>")),
		lifecycle(rule("1", "<Expiration><Date>9999-12-31T01:00:00+01:00</Date></Expiration>")),
		lifecycle(rule("1", "<Expiration><ExpiredObjectDeleteMarker>false</ExpiredObjectDeleteMarker></Expiration>"+
			"<NoncurrentVersionExpiration><NewerNoncurrentVersions>1</NewerNoncurrentVersions>"+
			"<NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>")),
		lifecycle(rule("1", "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"+
			"</AbortIncompleteMultipartUpload>"+
			"<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>")),
		lifecycle(manyRules()[:100]...),
		"<BucketLifecycleConfiguration>" + rule("1", inDays) + rule("2", inDays) + "</BucketLifecycleConfiguration>",
	} {
		l.ask("PUT /abc?lifecycle", doc)
		l.ask("GET /abc?lifecycle", "")
	}
	l.ask("PUT /abc/logs/k", "body")
	l.ask("PUT /abc/logs/k", "", "x-amz-copy-source", "/abc/logs/k", "x-amz-metadata-directive", "REPLACE")
	l.ask("GET /abc/logs/k", "")
	l.ask("POST /abc/logs/k?uploads", "")
	up := l.last()
	l.ask("PUT /abc/logs/k?partNumber=1&uploadId="+up, "hello")
	l.ask("POST /abc/logs/k?uploadId="+up, completion([]string{helloETag}))
	l.ask("DELETE /abc?lifecycle", "")
	l.ask("GET /abc?lifecycle", "")
	l.ask("GET /abc/logs/k", "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		l.ask(method+" /plain?lifecycle", lifecycle(rule("1", inDays)))
	}
	same(t, "testdata/answersaboutlifecycles.txt", l.all.String())
}

// TestAnswersTellWhenAnObjectExpires: by the rule that is the first to hide it, at a midnight.
func TestAnswersTellWhenAnObjectExpires(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	rules := []string{
		rule("later", "<Expiration><Days>9</Days></Expiration>"), rule("a&amp;b", inDays),
		strings.Replace(rule("off", "<Expiration><Days>1</Days></Expiration>"), "Enabled", "Disabled", 1),
		"<Rule><ID>small</ID><Filter><And><Prefix>by-size/</Prefix>" +
			"<ObjectSizeLessThan>3</ObjectSizeLessThan></And></Filter>" +
			"<Status>Enabled</Status><Expiration><Date>2999-01-01T00:00:00Z</Date></Expiration></Rule>",
	}
	s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(rules...))
	expiry := regexp.MustCompile(`^expiry-date="([^"]+)", rule-id="([^"]+)"$`)
	tells := func(a answer, id string) (at time.Time) {
		t.Helper()
		header := a.header.Get("x-amz-expiration")
		if id == "" {
			require.Empty(t, header)
			return at
		}
		found := expiry.FindStringSubmatch(header)
		require.NotNil(t, found, "%q", header)
		require.Equal(t, id, found[2])
		at, err := time.Parse(time.RFC1123, found[1])
		require.NoError(t, err)
		return at
	}
	begun := time.Now().UTC().Truncate(time.Second)
	put := s.want(200, "", "PUT", "/abc/logs/k", "body")
	at := tells(put, "a%26b")
	require.Equal(t, at, at.Truncate(24*time.Hour))
	require.GreaterOrEqual(t, at.Sub(begun), 3*24*time.Hour)
	require.LessOrEqual(t, time.Until(at), 4*24*time.Hour)
	for _, method := range []string{"GET", "HEAD"} {
		require.Equal(t, at, tells(s.want(200, "", method, "/abc/logs/k", ""), "a%26b"))
		tells(s.want(200, "", method, "/abc/logs/k?versionId="+put.header.Get("x-amz-version-id"), ""), "")
	}
	tells(s.want(200, "", "PUT", "/abc/logs/copy", "", "x-amz-copy-source", "/abc/logs/k"), "a%26b")
	tells(s.want(200, "", "PUT", "/abc/other", "body"), "")
	tells(s.want(200, "", "PUT", "/abc/by-size/large", "body"), "")
	require.Equal(t, 2999, tells(s.want(200, "", "PUT", "/abc/by-size/k", "b"), "small").Year())
}
