from headwater.cli.main import main

main()
