module github.com/simple-event-broker/seb/examples

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/simple-event-broker/seb v0.0.0-00010101000000-000000000000
	golang.org/x/sync v0.24.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/simple-event-broker/seb => ../
