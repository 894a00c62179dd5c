package s3store

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/simple-event-broker/seb/objstore"
)

const (
	credentialsHint = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or AWS_PROFILE"
	permissionHint  = "let the credentials use s3:ListBucket on the bucket, s3:GetObject and s3:PutObject on its objects, and s3:DeleteObject on those under probe/, log/, data/ and checkpoint/; " +
		"or use other credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"
)

// permissions are what S3 asks for each verb.
var permissions = map[objstore.Verb]string{
	objstore.VerbCreate: "s3:PutObject", objstore.VerbGet: "s3:GetObject", objstore.VerbList: "s3:ListBucket", objstore.VerbDelete: "s3:DeleteObject",
}

// quotaCodes are what Ceph and MinIO answer when an object would exceed a quota. They check that before they write
// anything. Other answers of a full store leave open what it has written.
var quotaCodes = []string{"QuotaExceeded", "XMinioAdminBucketQuotaExceeded"}

// explain returns err, the error of a request, as an [objstore.Failure]. The codes are those of
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
func (s *Store) explain(verb objstore.Verb, err error) error {
	f := s.failure(verb, err)
	f.Err = err
	if api, ok := errors.AsType[smithy.APIError](err); ok && slices.Contains(quotaCodes, api.ErrorCode()) {
		f.Err = fmt.Errorf("%w: %w", objstore.ErrFull, err)
	}
	return f
}

func (s *Store) failure(verb objstore.Verb, err error) *objstore.Failure {
	setup := func(hint, format string, args ...any) *objstore.Failure {
		return &objstore.Failure{Detail: fmt.Sprintf(format, args...), Hint: hint, Setup: true}
	}
	answer, answered := errors.AsType[*smithyhttp.ResponseError](err)
	answered = answered && answer.Response != nil && answer.Response.Response != nil && answer.HTTPStatusCode() != 0
	if !answered {
		return s.unanswered(err)
	}
	code, message := "", ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	switch code {
	case "InvalidAccessKeyId", "XAdminUserNotFound": // the latter is of versitygw
		return setup(credentialsHint, "the store does not know the access key ID of the credentials")
	case "SignatureDoesNotMatch":
		return setup(credentialsHint, "the secret access key does not belong to the access key ID")
	case "ExpiredToken", "TokenRefreshRequired":
		return setup(credentialsHint, "the session token of the credentials has expired")
	case "InvalidToken":
		return setup(credentialsHint, "the session token of the credentials is invalid")
	case "NoSuchBucket":
		return setup("create the bucket, or correct its name in the store's URL; also check the endpoint and the region", "the bucket %s does not exist", s.bucket)
	case "RequestTimeTooSkewed":
		return setup("set this machine's clock", "%s", skew(errorTime(err)))
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		denied := setup(permissionHint, "the credentials do not have the permission %s for the bucket %s", permissions[verb], s.bucket)
		if verb == objstore.VerbGet {
			denied.Detail += " (or not s3:ListBucket: without that permission S3 answers the same for a missing object)"
		}
		return denied
	}
	if answer.HTTPStatusCode() == http.StatusInsufficientStorage || slices.Contains(quotaCodes, code) {
		return &objstore.Failure{Detail: "the store is full: " + cmp.Or(message, code), Hint: "make room in the store, or raise its quota", Full: true}
	}
	if region, ok := s.wrongRegion(code, message, answer); ok {
		return region
	}
	what := http.StatusText(answer.HTTPStatusCode())
	foreign := code == "" || message == what // the body has no error of S3; the SDK then makes up a code
	if foreign && answer.HTTPStatusCode() == http.StatusBadRequest && strings.HasPrefix(s.Endpoint(), "http://") {
		return setup("write https:// in the endpoint of the store's URL", "the server at %s refuses plain HTTP: it may serve HTTPS only", s.Endpoint())
	}
	if !foreign {
		what = code + ": " + message
	}
	return &objstore.Failure{Detail: fmt.Sprintf("the store answered %d %s", answer.HTTPStatusCode(), what)}
}

// expectedRegion finds the region that the message of AuthorizationHeaderMalformed asks for.
var expectedRegion = regexp.MustCompile(`expecting ['"]([^'"]+)['"]`)

// wrongRegion explains the answers to requests for a bucket of another region. The answer is 301
// PermanentRedirect, 400 AuthorizationHeaderMalformed, or, by regions since 2019, 400
// IllegalLocationConstraintException.
func (s *Store) wrongRegion(code, message string, answer *smithyhttp.ResponseError) (_ *objstore.Failure, ok bool) {
	region := answer.Response.Header.Get("X-Amz-Bucket-Region")
	switch code {
	case "AuthorizationHeaderMalformed":
		if found := expectedRegion.FindStringSubmatch(message); found != nil && region == "" {
			region = found[1]
		}
		if region == "" {
			return nil, false // something else is wrong with the header
		}
	case "IllegalLocationConstraintException", "PermanentRedirect":
	default:
		if answer.HTTPStatusCode() != http.StatusMovedPermanently || region == "" { // servers that are no S3 store redirect, too
			return nil, false
		}
	}
	used := s.client.Options().Region
	f := &objstore.Failure{
		Detail: fmt.Sprintf("the bucket %s is in another region than %s", s.bucket, used),
		Hint:   "write the bucket's region as region=NAME into the store's URL, or set AWS_REGION; with an endpoint, it must be that of the region", Setup: true,
	}
	if region != "" && region != used {
		f.Detail = fmt.Sprintf("the bucket %s is in the region %s, not in %s", s.bucket, region, used)
		f.Hint = "write region=" + region + " into the store's URL, or set AWS_REGION"
		if s.Endpoint() != "" {
			f.Hint += "; the endpoint must be that of the region"
		}
	}
	return f, true
}

// skew says how far this machine's clock is from the store's; at is the time of the answer by the store's
// clock, or zero.
func skew(at time.Time) string {
	off := time.Since(at).Round(time.Second)
	switch {
	case at.IsZero():
		return "this machine's clock and the store's clock differ too much"
	case off < 0:
		return fmt.Sprintf("this machine's clock is %v behind the store's clock", -off)
	}
	return fmt.Sprintf("this machine's clock is %v ahead of the store's clock", off)
}

// unanswered explains the error of a request that got no answer of HTTP.
func (s *Store) unanswered(err error) *objstore.Failure {
	var (
		record   tls.RecordHeaderError
		untrusty *tls.CertificateVerificationError
		sent     *url.Error
	)
	where := cmp.Or(s.Endpoint(), "the store")
	if errors.As(err, &sent) {
		if u, parseErr := url.Parse(sent.URL); parseErr == nil {
			where = u.Scheme + "://" + u.Host
		}
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return &objstore.Failure{
			Detail: fmt.Sprintf("the server at %s does not serve HTTPS", where), Hint: "write http:// in the endpoint of the store's URL, or the port that serves HTTPS", Setup: true,
		}
	case sent != nil && strings.Contains(sent.Err.Error(), `malformed HTTP response "\x15\x03`): // the start of an alert of TLS
		return &objstore.Failure{
			Detail: fmt.Sprintf("the server at %s serves HTTPS only", where), Hint: "write https:// in the endpoint of the store's URL", Setup: true,
		}
	case errors.As(err, &untrusty):
		return &objstore.Failure{
			Detail: fmt.Sprintf("the certificate of %s can't be trusted: %v", where, untrusty.Err),
			Hint:   "name the file with the certificate of its authority in AWS_CA_BUNDLE, or correct the endpoint of the store's URL", Setup: true,
		}
	case errors.Is(err, context.DeadlineExceeded):
		return &objstore.Failure{Detail: fmt.Sprintf("no answer from %s in time", where)}
	case sent != nil:
		return &objstore.Failure{Detail: fmt.Sprintf("no answer from %s: %v", where, sent.Err)}
	}
	return &objstore.Failure{Detail: withoutSDK(err)}
}

// withoutSDK returns the text of err without what the SDK puts before it: the operation, the status and the
// ids of the answer.
func withoutSDK(err error) string {
	if operation, ok := errors.AsType[*smithy.OperationError](err); ok {
		err = operation.Err
	}
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		err = answer.Err
	}
	return err.Error()
}
