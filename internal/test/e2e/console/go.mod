module github.com/evenkeel/evenkeel/internal/test/e2e/console

go 1.26.0

require (
	github.com/chromedp/chromedp v0.23.0
	github.com/stretchr/testify v1.12.1
)

require github.com/chromedp/cdproto v0.159.0

require (
	github.com/go-json-experiment/json v1.27.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

// All modules are of one repository.
replace github.com/evenkeel/evenkeel => ../../../../
