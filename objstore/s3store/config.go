package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb/objstore"
)

// Config says where a store is, and how to reach it. The usual AWS environment variables and files
// supply what is not set here.
type Config struct {
	// Bucket must exist.
	Bucket string
	// Prefix, if it is not "", is put before every key, with a slash between them. Prefix itself
	// must not begin or end with a slash.
	Prefix string
	// Endpoint is the base URL of an S3-compatible server.
	Endpoint string
	// Region defaults to us-east-1 if Endpoint or the environment names an endpoint: most such servers have
	// only one region.
	Region string
	// PathStyle puts the bucket's name into the path of requests instead of the host name. nil means true if
	// Endpoint or the environment names an endpoint, else false.
	PathStyle *bool
	// AccessKeyID, SecretAccessKey and SessionToken can't be part of store URLs, which
	// end up in logs and process lists. If they are "", the credentials come from the usual AWS
	// environment variables, files and instance roles.
	AccessKeyID, SecretAccessKey, SessionToken string
	// DialContext, if not nil, makes the connections, for example through the embedder's own tunnel, proxy
	// or resolver. A store URL can't set it. There is no option for a whole HTTP client, because this
	// package depends on its own client's timeouts, and on the fact that this client never retries.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// bucketForm is what all servers require of a bucket's name. AWS has stricter rules today, but old buckets
// of AWS, and buckets of other servers, may have upper-case letters and underscores. The ARN of an access
// point of AWS can stand for a bucket.
var bucketForm = regexp.MustCompile(`^([0-9A-Za-z._-]{3,255}|arn:[^\s?#]+)$`)

// ParseURL reads a URL such as
//
//	s3://bucket/some/prefix?endpoint=https://s3.example.com&region=eu-1&path_style=true
//
// in which everything but the bucket is optional.
func ParseURL(storeURL string) (Config, error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		// The text of err quotes the URL, which may contain a secret by mistake.
		return Config{}, errors.New("parse store URL: it is malformed: it must look like s3://bucket/prefix?region=eu-west-1")
	}
	config, err := parse(u)
	if err != nil {
		return Config{}, fmt.Errorf("parse store URL: %w", err)
	}
	return config, nil
}

func parse(u *url.URL) (Config, error) {
	switch {
	case u.Scheme != "s3":
		return Config{}, fmt.Errorf("the scheme is %q; it must be s3", u.Scheme)
	case u.User != nil:
		return Config{}, errors.New("credentials don't belong in a URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	case u.Host == "":
		return Config{}, errors.New("no bucket: it must look like s3://bucket/prefix")
	case u.Fragment != "":
		return Config{}, errors.New("a store's URL must not have a fragment (#...)")
	}
	config := Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, errors.New("its query is malformed: it must look like ?region=eu-west-1&path_style=true")
	}
	for _, name := range sortedNames(values) {
		if err := config.set(name, values[name]); err != nil {
			return Config{}, err
		}
	}
	return config, config.check()
}

// sortedNames returns the names in a fixed order, so that the same URL always gets the same error.
func sortedNames(values url.Values) []string {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *Config) set(name string, values []string) error {
	if len(values) != 1 || values[0] == "" {
		return fmt.Errorf("%s must be given once, with a value", name)
	}
	switch value := values[0]; name {
	case "endpoint":
		c.Endpoint = value
	case "region":
		c.Region = value
	case "path_style":
		pathStyle, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("path_style is %q; it must be true or false", value)
		}
		c.PathStyle = &pathStyle
	default:
		return fmt.Errorf("unknown parameter %q; known are endpoint, region and path_style", name)
	}
	return nil
}

func (c *Config) check() error {
	if c.Bucket == "" {
		return errors.New("no bucket")
	}
	if !bucketForm.MatchString(c.Bucket) {
		return fmt.Errorf("no bucket can have the name %q: names have 3 or more letters, digits, dots, hyphens and underscores", c.Bucket)
	}
	if strings.ContainsFunc(c.Region, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("no region can have the name %q: it must look like eu-west-1", c.Region)
	}
	if c.Prefix != "" {
		if err := objstore.CheckKey(c.Prefix); err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("endpoint must look like https://host or http://host:port")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("endpoint has a query or a fragment; it must look like https://host or http://host:port")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("endpoint has the port %s; it must be 1 to 65535", port)
		}
	}
	return nil
}
