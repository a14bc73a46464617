# Tests that are not gtest programs. Those that need PyTorch exit with 77 where it is missing and
# then count as skipped, with the reason in their output.

# Debian installs PyTorch for its own interpreter, which need not be the first in PATH.
find_program(CONVOY_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
mark_as_advanced(CONVOY_PYTHON)

set(agreement ${CMAKE_CURRENT_SOURCE_DIR}/tests/torch/agreement.py)
function(convoy_torch_test name)
  if(CONVOY_PYTHON)
    add_test(NAME torch.${name} COMMAND ${CONVOY_PYTHON} ${agreement} ${ARGN})
  else()
    add_test(NAME torch.${name} COMMAND sh -c
      "echo 'SKIPPED, NOTHING WAS COMPARED: there is no /usr/bin/python3'; exit 77")
  endif()
  set_tests_properties(torch.${name} PROPERTIES LABELS torch SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()

convoy_torch_test(The_comparison_notices_wrong_gradients --self-test)
if(TARGET tests_dump)
  foreach(net lenet alexnet caffenet overfeat-fast vgg-a vgg-16 googlenet-bn resnet-18 resnet-50
      resnet-20 resnet-32 resnet-56 mobilenet-v1 cd-dnn mlp)
    convoy_torch_test(${net}_agrees_with_PyTorch --double --dump $<TARGET_FILE:tests_dump> --net ${net})
  endforeach()
endif()

if(CONVOY_PYTHON)
  add_test(NAME scripts.A_competing_load_comes_and_goes COMMAND ${CONVOY_PYTHON}
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/compete_works)
else()
  add_test(NAME scripts.A_competing_load_comes_and_goes COMMAND sh -c
    "echo 'SKIPPED, NOTHING WAS TRIED: there is no /usr/bin/python3'; exit 77")
endif()
set_tests_properties(scripts.A_competing_load_comes_and_goes PROPERTIES LABELS scripts
  SKIP_RETURN_CODE 77 TIMEOUT 120 RUN_SERIAL ON)

# What communicators promise, between processes. mpirun as root and with more ranks than cores wants
# to be told that this is meant.
set(no_leaks ASAN_OPTIONS=detect_leaks=0)  # Open MPI leaves memory to the end of the process
foreach(ranks 1 2 3 5)
  add_test(NAME mpi.${ranks}_ranks_keep_the_contract COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks}
    --allow-run-as-root --oversubscribe --bind-to none $<TARGET_FILE:tests_mpi_contract>)
  set_tests_properties(mpi.${ranks}_ranks_keep_the_contract PROPERTIES LABELS mpi TIMEOUT 120
    RUN_SERIAL ON ENVIRONMENT ${no_leaks})
endforeach()
foreach(ranks 1 2 3 4)
  add_test(NAME mpi.${ranks}_model_servers_lose_nothing COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks}
    --allow-run-as-root --oversubscribe --bind-to none $<TARGET_FILE:tests_mpi_servers>)
  set_tests_properties(mpi.${ranks}_model_servers_lose_nothing PROPERTIES LABELS mpi TIMEOUT 120
    RUN_SERIAL ON ENVIRONMENT ${no_leaks})
endforeach()
add_test(NAME mpi.Waiting_in_the_library_ends COMMAND ${MPIEXEC_EXECUTABLE} -n 2
  --allow-run-as-root --oversubscribe --bind-to none $<TARGET_FILE:tests_mpi_contract> absent)
set_tests_properties(mpi.Waiting_in_the_library_ends PROPERTIES LABELS mpi TIMEOUT 30
  RUN_SERIAL ON ENVIRONMENT ${no_leaks} PASS_REGULAR_EXPRESSION
  "worker 0 .*: splitting the communicator did not end within 1")

# The same between hosts. Each has a mini-cluster of its own, with its own name and addresses, so
# that it collides neither with another test nor with a user's.
function(convoy_minicluster_test name prefix subnet hosts)
  add_test(NAME minicluster.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/on_minicluster
    ${prefix} ${subnet} ${hosts} ${ARGN})
  set_tests_properties(minicluster.${name} PROPERTIES LABELS minicluster SKIP_RETURN_CODE 77
    TIMEOUT 180 RUN_SERIAL ON ENVIRONMENT ${no_leaks})
endfunction()
convoy_minicluster_test(Hosts_can_be_reached_cut_and_killed convoytest1 10.78.1 3
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/minicluster_works)
convoy_minicluster_test(Three_hosts_keep_the_contract convoytest2 10.78.2 3
  ${CMAKE_CURRENT_SOURCE_DIR}/scripts/minicluster mpirun $<TARGET_FILE:tests_mpi_contract>)
convoy_minicluster_test(Slow_hosts_have_their_part_of_a_core convoytest4 10.78.4 3
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/minicluster_cpu)
if(TARGET convoy_app)
  convoy_minicluster_test(Workers_give_the_bits_of_one_and_end_when_a_host_is_lost convoytest3
    10.78.3 3 ${CMAKE_CURRENT_SOURCE_DIR}/tests/workers_on_minicluster $<TARGET_FILE:convoy_app>)
endif()

if(TARGET convoy_app)
  add_test(NAME scripts.The_page_of_a_plan_opens_in_a_browser COMMAND
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/report_page $<TARGET_FILE:convoy_app>)
  set_tests_properties(scripts.The_page_of_a_plan_opens_in_a_browser PROPERTIES LABELS scripts
    SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
