from . import runner

runner.main()
