// Go itself, for Debian's Go to fetch: versitygw asks for a newer one than Debian has. go.sum has its hashes.
module tussock.invalid/go

go 1.19
