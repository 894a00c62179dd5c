// Package s3store is a store in a bucket of Amazon S3, or of a server with the same
// protocol.
//
// The store needs conditional writes (If-None-Match: * on PutObject), strong consistency, and lists in byte
// order. S3 has these, but not every compatible server or bucket type. The store never retries a request whose
// outcome is unknown. If the SDK retried a Create whose first attempt had succeeded, the caller would get
// "exists" and believe that another writer had created the object. The store repeats a request only if
// the server has refused it because of the clock. For any other repetition, callers wait and repeat themselves.
//
// Over HTTPS, TLS protects the bodies of Creates, and they are not hashed for the signature. Over plain HTTP
// they are hashed. The SDK's checksums are used only where S3 requires them, since many servers don't
// support them. So callers must be able to detect damaged objects.
package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/simple-event-broker/seb/objstore"
)

const (
	// requestTimeout bounds requests whose callers set no deadline. It is enough for
	// 32 MiB at 0.6 MiB/s.
	requestTimeout = 60 * time.Second
	// responseTimeout is how long the store waits for the headers of an answer after it has sent a whole
	// request.
	responseTimeout = 30 * time.Second
	// idleConnsMax is how many idle connections are kept: as many as one broker has
	// parallel requests.
	idleConnsMax     = 320
	writeBufferBytes = 64 << 10
	readBufferBytes  = 16 << 10 // large bodies are read past the buffer
)

// Store is an [objstore.Store] in a bucket. The times in its answers are the Date headers of the server's
// responses, in whole seconds.
type Store struct {
	client *s3.Client
	bucket string
	prefix string // "" or ends with a slash
}

var _ objstore.Store = (*Store)(nil)

// Open returns the store at a URL of the form that [ParseURL] describes. Open looks for credentials, but
// sends no request to the bucket.
func Open(ctx context.Context, storeURL string) (*Store, error) {
	config, err := ParseURL(storeURL)
	if err != nil {
		return nil, err
	}
	return OpenConfig(ctx, config)
}

// OpenConfig is [Open] with a Config instead of a URL.
func OpenConfig(ctx context.Context, config Config) (*Store, error) {
	s, err := open(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket %s: %w", config.Bucket, err)
	}
	return s, nil
}

func open(ctx context.Context, config Config) (*Store, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(config.httpClient()),
		awsconfig.WithLogger(logging.Nop{}), // the SDK's default logger writes errors to standard error
	}
	if config.Region != "" {
		options = append(options, awsconfig.WithRegion(config.Region))
	}
	if config.AccessKeyID != "" {
		given := aws.Credentials{AccessKeyID: config.AccessKeyID, SecretAccessKey: config.SecretAccessKey, SessionToken: config.SessionToken}
		options = append(options, awsconfig.WithCredentialsProvider(aws.CredentialsProviderFunc(
			func(context.Context) (aws.Credentials, error) { return given, nil })))
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, notLoaded(err)
	}
	if _, err := loaded.Credentials.Retrieve(ctx); err != nil {
		return nil, &objstore.Failure{Detail: "no credentials for S3: none are in AWS_ACCESS_KEY_ID, in the files of AWS, or in the role of this machine", Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", Setup: true, Err: err}
	}
	s := &Store{client: s3.NewFromConfig(loaded, config.apply), bucket: config.Bucket}
	if config.Prefix != "" {
		s.prefix = config.Prefix + "/"
	}
	if s.client.Options().Region == "" {
		return nil, &objstore.Failure{Detail: "no region: neither the store's URL nor AWS_REGION names one", Hint: "add ?region=NAME to the store's URL, or set AWS_REGION", Setup: true}
	}
	return s, nil
}

// notLoaded explains why the SDK's configuration could not be loaded.
func notLoaded(err error) error {
	f := &objstore.Failure{Detail: "the configuration of AWS can't be loaded: " + err.Error(), Hint: "check the AWS_ variables, and the files that AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE name", Setup: true, Err: err}
	if missing, ok := errors.AsType[awsconfig.SharedConfigProfileNotExistError](err); ok {
		f.Detail, f.Hint = fmt.Sprintf("there is no profile %q in the configuration of AWS", missing.Profile), "check AWS_PROFILE"
	}
	return f
}

// Endpoint returns the base URL of the server from the Config or the environment; "" if the server is
// Amazon's.
func (s *Store) Endpoint() string { return aws.ToString(s.client.Options().BaseEndpoint) }

func (c *Config) apply(o *s3.Options) {
	if c.Endpoint != "" {
		o.BaseEndpoint = &c.Endpoint
	}
	if o.BaseEndpoint != nil && o.Region == "" {
		o.Region = "us-east-1"
	}
	o.UsePathStyle = o.BaseEndpoint != nil
	if c.PathStyle != nil {
		o.UsePathStyle = *c.PathStyle
	}
	o.Retryer = aws.NopRetryer{}
	o.RetryMaxAttempts = 0 // overrides AWS_MAX_ATTEMPTS: with any other value the SDK would wrap the retryer, and retry
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
	// With Expect: 100-continue the client would not send the body of a PutObject that the server refuses.
	// But the header costs a round trip, and one second if the server ignores it, and servers rarely refuse
	// a large body.
	o.ContinueHeaderThresholdBytes = -1
}

func (c *Config) httpClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		// HTTP/1 has one connection per request in flight. HTTP/2 would send all requests over one
		// TCP connection, and Go's HTTP/2 client may resend requests.
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.ForceAttemptHTTP2 = false
		t.MaxIdleConns = idleConnsMax
		t.MaxIdleConnsPerHost = idleConnsMax
		t.ResponseHeaderTimeout = responseTimeout
		t.WriteBufferSize = writeBufferBytes
		t.ReadBufferSize = readBufferBytes
		if c.DialContext != nil {
			t.DialContext = c.DialContext
		}
	})
}

// Create implements [objstore.Store] by PutObject with If-None-Match.
func (s *Store) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	name, err := s.name(key)
	if err != nil {
		return time.Time{}, fmt.Errorf("create: %w", err)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	out, err := again(func() (*s3.PutObjectOutput, error) {
		body := newPartsReader(parts)
		return s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket:        &s.bucket,
			Key:           &name,
			IfNoneMatch:   aws.String("*"),
			Body:          body,
			ContentLength: aws.Int64(body.size),
		})
	})
	if status(err) == http.StatusPreconditionFailed {
		return errorTime(err), fmt.Errorf("create %s: %w", key, objstore.ErrExists)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("create %s: %w", key, s.explain(objstore.VerbCreate, err))
	}
	return answerTime(out.ResultMetadata), nil
}

// List implements [objstore.Store] by ListObjectsV2, whose pages hold at most
// 1,000 keys.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (objstore.Page, error) {
	if err := objstore.CheckPrefix(prefix); err != nil {
		return objstore.Page{}, fmt.Errorf("list: %w", err)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	page, err := s.list(ctx, prefix, after, limit)
	if err != nil {
		return objstore.Page{}, fmt.Errorf("list %s: %w", cmp.Or(prefix, "all objects"), err)
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, prefix, after string, limit int) (page objstore.Page, err error) {
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}
	if limit > 0 {
		in.MaxKeys = aws.Int32(int32(min(limit, 1000)))
	}
	if after != "" {
		in.StartAfter = aws.String(s.prefix + after)
	}
	last := after
	// S3 may answer with a page without keys although more pages follow, so the loop goes on to the next
	// page.
	for first := true; ; first = false {
		out, err := again(func() (*s3.ListObjectsV2Output, error) { return s.client.ListObjectsV2(ctx, in) })
		if err != nil {
			return objstore.Page{}, s.explain(objstore.VerbList, err)
		}
		if first {
			page.Time = answerTime(out.ResultMetadata)
		}
		for _, object := range out.Contents {
			key, ok := strings.CutPrefix(aws.ToString(object.Key), s.prefix)
			if ok && key == "" {
				continue // the object that S3 consoles create for a folder: its key is the prefix
			}
			if !ok || !strings.HasPrefix(key, prefix) || key <= last {
				return objstore.Page{}, fmt.Errorf("the store answered %q after %q: it does not list keys in byte order, so Seb can't use it", aws.ToString(object.Key), last)
			}
			last = key
			// The page also has keys that [objstore.CheckKey] refuses: a caller that asks whether a prefix is
			// empty must learn that there are such objects.
			page.Keys = append(page.Keys, key)
		}
		page.More = aws.ToBool(out.IsTruncated)
		if len(page.Keys) > 0 || !page.More {
			return page, nil
		}
		if in.ContinuationToken = out.NextContinuationToken; in.ContinuationToken == nil {
			return objstore.Page{}, errors.New("the store says that there are more keys, but gives no continuation token")
		}
	}
}

// Delete implements [objstore.Store] by DeleteObject.
func (s *Store) Delete(ctx context.Context, key string) (time.Time, error) {
	name, err := s.name(key)
	if err != nil {
		return time.Time{}, fmt.Errorf("delete: %w", err)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	out, err := again(func() (*s3.DeleteObjectOutput, error) {
		return s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &name})
	})
	if isNoSuchKey(err) { // S3 answers with success, but some servers answer NoSuchKey
		return errorTime(err), nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("delete %s: %w", key, s.explain(objstore.VerbDelete, err))
	}
	return answerTime(out.ResultMetadata), nil
}

// again sends a request, and sends it up to twice more if the store has refused it because of this machine's clock.
// The SDK signs with this machine's time corrected by the skew that the last answer showed: the clock may have jumped
// since. The store has not executed a refused request, so again does not retry a request with an unknown outcome.
func again[T any](send func() (T, error)) (T, error) {
	for more := 2; ; more-- {
		out, err := send()
		if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != "RequestTimeTooSkewed" || more == 0 {
			return out, err
		}
	}
}

// name returns the name that the object under key has in the bucket: the prefix, then the key.
func (s *Store) name(key string) (string, error) {
	if err := objstore.CheckKey(key); err != nil {
		return "", err
	}
	return s.prefix + key, nil
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// answerTime returns the Date of a successful answer; the zero time if the answer had no Date.
func answerTime(metadata middleware.Metadata) time.Time {
	at, _ := awsmiddleware.GetServerTime(metadata)
	return at
}

// errorTime returns the Date of the response that err is from; the zero time if the response had no
// Date.
func errorTime(err error) time.Time {
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || response.Response == nil {
		return time.Time{}
	}
	at, err := http.ParseTime(response.Response.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return at
}

// status returns the HTTP status of the response that err is from, 0 if there
// was no response.
func status(err error) int {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.Response != nil {
		return response.HTTPStatusCode()
	}
	return 0
}

// isNoSuchKey reports whether the store answered that the object does not exist. It returns false for all
// other 404s: for a missing bucket, a proxy's answer, an answer without a body.
func isNoSuchKey(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "NoSuchKey" && status(err) == http.StatusNotFound
}
