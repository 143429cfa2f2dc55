module github.com/drawbridge-dev/drawbridge/test/rules

go 1.26.0

replace github.com/drawbridge-dev/drawbridge => ../..

require (
	github.com/drawbridge-dev/drawbridge v0.0.0 // indirect
	github.com/prometheus/prometheus v0.314.0 // indirect
)
