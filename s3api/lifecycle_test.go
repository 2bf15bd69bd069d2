package s3api_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		"a size": begins("1") + "<Filter><ObjectSizeGreaterThan>500</ObjectSizeGreaterThan></Filter>" + on + inDays + "</Rule>",
		"two": begins("1") + "<Filter></Filter>" + on + "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays>" +
			"<NewerNoncurrentVersions>100</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule>" +
			begins("2") + "<Filter></Filter>" + off + "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2147483647" +
			"</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>",
	} {
		s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(rules))
		got := s.want(200, "", "GET", "/abc?lifecycle", "").body
		require.Equal(t, root+rules+"</LifecycleConfiguration>", got[strings.Index(got, root):], name)
	}
	s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration>"+on+"</VersioningConfiguration>")
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

func TestLifecyclesThatAreRefused(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	many := make([]string, 101)
	for i := range many {
		many[i] = rule(fmt.Sprint(i), inDays)
	}
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
	const aborts = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
	const larger = "<ObjectSizeGreaterThan>5</ObjectSizeGreaterThan>"
	refused := map[string][]string{
		"MalformedXML": {
			"", "x", "<a/>", "<LifecycleConfiguration>", lifecycle(), lifecycle("<Rules/>"), lifecycle("<Rule>"),
			lifecycle(strings.Replace(rule("1", inDays), "Enabled", "enabled", 1)), lifecycle(rule("1", "<Other/>"+inDays)),
			lifecycle("<Rule><Prefix/>" + inDays + "</Rule>"), lifecycle("<Rule><Status>Enabled</Status>" + inDays + "</Rule>"),
			lifecycle(rule("1", "<Filter/>"+inDays)), lifecycle(rule("1", inDays+inDays)), lifecycle(rule("1", "<ID>2</ID>"+inDays)),
			lifecycle(expires("")), lifecycle(expires("<Days>x</Days>")), lifecycle(expires("<Days/>")),
			lifecycle(expires("<Days>1</Days><Days>1</Days>")),
			lifecycle(expires("<Days>1</Days><Date>2020-01-01T00:00:00Z</Date>")), lifecycle(expires("<Date>20200101</Date>")),
			lifecycle(expires("<Hours>1</Hours>")), lifecycle(noncurrent("")),
			lifecycle(noncurrent("<NewerNoncurrentVersions>1</NewerNoncurrentVersions>")), lifecycle(noncurrent("<Days>1</Days>")),
			lifecycle(rule("1", "<AbortIncompleteMultipartUpload/>")),
			lifecycle(rule("1", strings.ReplaceAll(aborts, "DaysAfterInitiation", "Days"))),
			lifecycle(filter("<Prefix>a</Prefix>"+larger, inDays)), lifecycle(filter("<And></And>", inDays)),
			lifecycle(filter("<And><And><Prefix>a</Prefix></And></And>", inDays)), lifecycle(filter("<Other/>", inDays)),
			lifecycle(filter("<Prefix>a</Prefix><Prefix>b</Prefix>", inDays)),
		},
		"InvalidArgument": {
			lifecycle(rule(strings.Repeat("a", 256), inDays)), lifecycle(rule("1", inDays), rule("1", inDays)),
			lifecycle(expires("<Days>0</Days>")), lifecycle(expires("<Days>-1</Days>")),
			lifecycle(expires("<Days>2147483648</Days>")),
			lifecycle(expires("<Date>2020-01-01T00:00:01Z</Date>")), lifecycle(expires("<Date>2020-01-01T00:00:00+01:00</Date>")),
			lifecycle(expires("<Date>1969-12-31T00:00:00Z</Date>")),
			lifecycle(noncurrent("<NoncurrentDays>0</NoncurrentDays>")),
			lifecycle(noncurrent("<NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>101</NewerNoncurrentVersions>")),
			lifecycle(noncurrent("<NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>0</NewerNoncurrentVersions>")),
			lifecycle(rule("1", strings.ReplaceAll(aborts, ">1<", ">0<"))),
			lifecycle(strings.Replace(rule("1", inDays), "logs/", strings.Repeat("p", 1025), 1)),
			lifecycle(filter("<ObjectSizeLessThan>0</ObjectSizeLessThan>", inDays)), lifecycle(long...),
		},
		"InvalidRequest": {
			lifecycle(rule("1", "")), lifecycle(many...), lifecycle(filter(larger, marks)), lifecycle(filter(larger, aborts)),
			lifecycle(expires("<ExpiredObjectDeleteMarker>false</ExpiredObjectDeleteMarker>")),
			lifecycle(filter("<And>"+larger+"<ObjectSizeLessThan>6</ObjectSizeLessThan></And>", inDays)),
		},
		"NotImplemented": {
			lifecycle(rule("1", "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>")),
			lifecycle(rule("1", inDays+"<NoncurrentVersionTransition/>")),
			lifecycle(filter("<Tag><Key>a</Key><Value>b</Value></Tag>", inDays)),
			lifecycle(filter("<And><Tag/></And>", inDays)),
		},
	}
	for code, documents := range refused {
		for _, doc := range documents {
			status := 400
			if code == "NotImplemented" {
				status = 501
			}
			require.Equal(t, code, s.want(status, "", "PUT", "/abc?lifecycle", doc).code(), "%.300s", doc)
		}
	}
	s.want(404, "NoSuchLifecycleConfiguration", "GET", "/abc?lifecycle", "")
	s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(many[:100]...))
	s.want(400, "EntityTooLarge", "PUT", "/abc?lifecycle", strings.Repeat(" ", 65<<10))
}

// TestAnswersTellWhenAnObjectExpires: by the rule that is the first to hide it, at a midnight.
func TestAnswersTellWhenAnObjectExpires(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	rules := []string{
		rule("later", "<Expiration><Days>9</Days></Expiration>"), rule("a&amp;b", inDays),
		strings.Replace(rule("off", "<Expiration><Days>1</Days></Expiration>"), "Enabled", "Disabled", 1),
		"<Rule><ID>small</ID><Filter><And><Prefix>by-size/</Prefix><ObjectSizeLessThan>3</ObjectSizeLessThan></And></Filter>" +
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
