package s3blobs_test

import (
	"fmt"

	"github.com/evenkeel/evenkeel/objects/s3blobs"
)

// The place of bodies as the flag --bodies of listd takes it. Open makes the store of blobs for objects.New from it,
// with the access key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
func ExampleParse() {
	place, err := s3blobs.Parse("s3://bodies?endpoint=http://10.0.0.5:9000&region=eu-central-1")
	fmt.Println(place.Bucket, place.Endpoint, place.Region, err)
	// Output: bodies http://10.0.0.5:9000 eu-central-1 <nil>
}
