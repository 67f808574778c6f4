module penstock/benchmarks/load

go 1.22
