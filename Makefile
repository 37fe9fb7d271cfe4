setup: ; @test -d .venv
